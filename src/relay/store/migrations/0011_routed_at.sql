-- When an event that had matched no rule was routed anew, null for all others: what became of it first is part of its
-- story, however often its deliveries are sent again.
alter table receipts add column routed_at timestamptz;
