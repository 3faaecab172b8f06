-- From where on in a lane a claim need look: what was due before this was not pending when one last looked there, but for
-- what came late. Nobody but a claim that is told to be `narrow` relies on it.
--
-- A claimed row leaves a dead entry in the index of what is pending. While some transaction keeps an old snapshot open,
-- nothing removes these, and each claim of a lane would pass over all that were taken from it since.
alter table endpoint_state add column looked_from timestamptz;

-- When the first of a lane is due from an instant on, null if nothing is.
create function first_due(p_endpoint uuid, p_from timestamptz) returns timestamptz language sql stable as $$
    select d.due_at from deliveries d
    where d.status = 'pending' and d.endpoint_id = p_endpoint and d.due_at >= coalesce(p_from, '-infinity')
    order by d.due_at limit 1
$$;
