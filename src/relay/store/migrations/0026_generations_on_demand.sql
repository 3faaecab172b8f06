-- Whether a person asked for the generation that follows this one: from there on its missing acks are counted anew. What
-- was acked or dead was never sent again for want of an ack.
alter table past_generations add column on_demand boolean not null default false;
update past_generations set on_demand = true where acked_at is not null or dead_at is not null;
