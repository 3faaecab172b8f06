-- An event is found by its day and its receipt. A plan that was made while a day was still empty took the numbers' index
-- instead, which began with the day too, and after midnight read all of the new day for each claim until it was made
-- anew. Walking a partition by number needs no day in front; and of two indexes that seem to cost the same, the planner
-- takes the younger one, so the key is made after it.
alter table journal drop constraint journal_day_partition_number_key, drop constraint journal_pkey;
alter table journal add unique (partition, number, day);
alter table journal add primary key (day, receipt_id);
