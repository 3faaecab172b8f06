-- What was pruned of the journal: stretches of positions that are no longer there, and the day that they lay in. They are
-- written in the transaction that drops the day, so a position is either there or here, and `relay verify` can say of
-- each that is missing whether it ought to be.
create table pruned_ranges (
    day date not null,
    partition smallint not null check (partition between 0 and 15),
    first bigint not null check (first >= 1),
    last bigint not null,
    pruned_at timestamptz not null default now(),
    check (last >= first),
    primary key (day, partition, first)
);

-- What the last verification found, for whoever reports it. One row, none before the first.
create table last_verification (
    singleton boolean primary key default true check (singleton),
    verified_at timestamptz not null default now(),
    ok boolean not null,
    events bigint not null,
    unaccounted bigint not null,
    faults bigint not null
);
