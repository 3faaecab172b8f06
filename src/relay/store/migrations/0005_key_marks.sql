-- One text sealed under each key that this installation's processes have used as their newest. Who opens none of them
-- was started with keys of another installation: it could neither open a stored secret nor seal one for the others.
create table key_marks (
    sealed bytea primary key,
    made_at timestamptz not null default now()
);
