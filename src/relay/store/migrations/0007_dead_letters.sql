-- The indexes of dead letters carry what a page compares, so that a page reads nothing else until it knows its rows, and
-- so that no other index of `deliveries` looks as good to the planner where an endpoint or a reason has few of them.
drop index deliveries_dead, deliveries_dead_reason, deliveries_dead_endpoint, receipts_unrouted;
create index deliveries_dead on deliveries (tenant, dead_at, id) include (receipt_id, endpoint_id)
    where status = 'dead' and discarded_at is null;
create index deliveries_dead_reason on deliveries (tenant, dead_reason, dead_at, id) include (receipt_id, endpoint_id)
    where status = 'dead' and discarded_at is null;
create index deliveries_dead_endpoint on deliveries (endpoint_id, dead_at, id) include (receipt_id, dead_reason)
    where status = 'dead' and discarded_at is null;
create index receipts_unrouted on receipts (tenant, unrouted_at, id) include (type) where unrouted_at is not null;
