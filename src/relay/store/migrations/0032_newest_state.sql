-- A lane's state is found at its newest version.
--
-- Claims update it many times a second, in place (HOT). While some transaction keeps an old snapshot open, no version can
-- be removed; they fill page after page, each with an entry in the index, and whoever looks for the lane walks through
-- all of them to the one that counts, in order of age. So the second of the last claim is part of the key: the newest
-- second's versions come first, and are a few pages at the most.
select lock_alone(array['endpoint_state'::regclass]);
alter table endpoint_state add column claimed_second bigint not null default 0;
alter table endpoint_state drop constraint endpoint_state_pkey;
alter table endpoint_state add primary key (endpoint_id, claimed_second);

-- There is still one row of an endpoint: it is made with it. An index of `endpoint_id` alone would be what the key was, and
-- compare each new version with all that an old snapshot keeps. Rows are made seldom, so who makes one looks; whoever
-- else would make one of the same endpoint waits for its end.
create function refuse_second_state() returns trigger language plpgsql as $$ begin
    perform from endpoints e where e.id = new.endpoint_id for no key update;
    if exists (select from endpoint_state s where s.endpoint_id = new.endpoint_id) then
        raise exception using errcode = 'integrity_constraint_violation', constraint = tg_name, table = tg_table_name,
            message = format('endpoint %s has a state already', new.endpoint_id);
    end if;
    return new;
end $$;
create trigger an_endpoint_has_one_state before insert on endpoint_state
    for each row execute function refuse_second_state();

-- The state of an endpoint. (The planner writes it into the statement that asks, where a plain join would not know that
-- there is but one row.)
create function state_of(p_endpoint uuid) returns setof endpoint_state language sql stable as $$
    select s.* from endpoint_state s where s.endpoint_id = p_endpoint order by s.claimed_second desc limit 1
$$;

-- The key's part of the next version: never earlier than that of the one before, also where the clock is set back.
create function claimed_second(p_before bigint, p_now timestamptz) returns bigint language sql immutable as $$
    select greatest(p_before, extract(epoch from p_now)::bigint)
$$;

-- As before, but it looks at the newest delivery first: what is under way was mostly claimed last, and behind it lie the
-- entries of all that was under way before. (By two bounds, so that no index of what is under way in all lanes will do.)
create or replace function is_full(s endpoint_state) returns boolean language sql stable as $$
    select s.full_at is not null and coalesce((
        select true from deliveries d
        where d.endpoint_id = s.endpoint_id and d.status >= 'in_flight' and d.status <= 'in_flight'
          and d.lease_token is not null
        order by d.status desc, d.id desc limit 1), false)
$$;
