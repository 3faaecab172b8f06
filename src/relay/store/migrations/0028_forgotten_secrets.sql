-- Secrets that nothing can need any more are forgotten, also those of removed endpoints.
select lock_alone(array['endpoints'::regclass]);
alter table endpoints
    alter column secret_id drop not null,
    add constraint endpoints_secret_check check (secret_id is not null or removed_at is not null);

-- what looks whether a secret is referred to, and the foreign keys of one that is deleted
create index endpoints_secret on endpoints (secret_id);
create index endpoints_previous_secret on endpoints (previous_secret_id) where previous_secret_id is not null;
create index sources_secret_id on sources (secret_id) where secret_id is not null;
create index sources_previous_secret on sources (previous_secret_id) where previous_secret_id is not null;
