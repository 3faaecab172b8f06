-- Whoever buries what removed endpoints are owed asks for them every few seconds, and not for all the others.
select lock_alone(array['endpoints'::regclass]);
create index endpoints_removed on endpoints (id) where removed_at is not null;
