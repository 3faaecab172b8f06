-- Relay's role and database, made once, when the server's volume is new. The role owns its database and is no superuser;
-- pg_monitor lets it see what standbys have on disk, which a quorum is proved by.
\getenv password POSTGRES_RELAY_PASSWORD
create role relay login password :'password';
grant pg_monitor to relay;
create database relay owner relay;
revoke all on database relay from public;
