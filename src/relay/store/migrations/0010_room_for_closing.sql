-- A receipt is updated with each of its acks, and a batch closes whole pages of them at once: with room for one more
-- version of each row, which is a little longer, the update stays HOT and leaves the indexes alone. In a table that is
-- there already, this counts for the pages to come.
alter table receipts set (fillfactor = 45);
