"""The configuration of the embedded server, in the language of nats-server.

Paths in it are relative: the server runs in its store folder.
"""

from gymq.cluster.server.address import HOST, USER

MONITOR = "monitor"  # the user that may ask the server how it is; it reaches no message of ours
LOG_FILE = "nats-server.log"
LOG_MAX_BYTES = 16 << 20

LIMITS = """\
max_payload: 8MB           # what the server recommends as the most; larger rollouts travel in parts
max_pending: 128MB         # bytes that may wait for a slow client before the server cuts its connection
write_deadline: "10s"
max_connections: 20000
max_control_line: 4KB      # nats-py reads protocol lines up to this length
ping_interval: "20s"       # with ping_max: a client that froze is cut after a minute instead of six
ping_max: 2
"""


def render_config(
    *,
    server_name: str,
    version: tuple[int, int, int],
    port: int,
    password: str,
    monitor_password: str,
    max_file_bytes: int,
) -> str:
    """Return the text of nats-server.conf.

    The server syncs its files every two minutes: a kill -9 loses nothing, a power cut may lose what is younger. It has
    no monitoring over HTTP, which would answer any client, pages in a browser too: it is asked over NATS.

    Args:
        version: of the server that will read it.
    """
    # nats-py up to 2.16 does not know the second form of ack subjects: its ordered consumers and KV watchers go silent.
    # Servers before 2.14 refuse to start with the word in their configuration.
    feature_flags = "feature_flags { js_ack_fc_v2: false }" if version >= (2, 14, 0) else ""
    return f"""\
# Written by gymq at every start of the server. Changes made here are lost.
server_name: "{server_name}"
host: "{HOST}"
port: {port}
authorization {{ users: [ {{ user: "{USER}", password: "{password}" }} ] }}
accounts {{ $SYS {{ users: [ {{ user: "{MONITOR}", password: "{monitor_password}" }} ] }} }}

{LIMITS}
logfile: "{LOG_FILE}"
logfile_size_limit: {LOG_MAX_BYTES}
logfile_max_num: 3

{feature_flags}
jetstream {{
  store_dir: "."
  max_mem: 1GB
  max_file: {max_file_bytes}  # below the free disk: then "full" is a clean error instead of a frozen stream
}}
"""
