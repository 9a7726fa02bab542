"""A client in Python against a server: `pymemcache.py HOST:PORT fill|look`.

`fill` tries every kind of request that pymemcache has, compares all it gets with what it set, and leaves
records behind. `look` compares what is left, also after the server died. It ends with exit code 0 and the
line `ok` if all was as it should be, and with a traceback otherwise. It knows nothing of the server.
"""

import sys

# This file has the name of the package: its own folder is not searched.
del sys.path[0]

from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError, MemcacheServerError

MANY = {f"py-many-{n}": f"value {n}".encode() * (n % 7) for n in range(500)}
LARGE = {f"py-large-{size}": bytes(range(256)) * (size // 256) for size in (4096, 65536, 1000000 // 256 * 256)}
LEFT = {"py-sum": b"41", "py-text": b"<middle>", "py-cas": b"third", "py-empty": b"", "py-line": b"a\r\nEND\r\n"}


class Flags:
    """Keeps the flags of an item beside its value."""

    def serialize(self, key, value):
        data, flags = value
        return data, flags

    def deserialize(self, key, value, flags):
        return value, flags


def same(found, expected):
    assert found == expected, f"found {found!r:.200}, expected {expected!r:.200}"


def fill(client, flagged):
    for key, value in MANY.items():
        # Without an answer; the next request that has one comes after all of them.
        client.set(key, value, noreply=True)
    same(client.get_many(list(MANY)), MANY)
    same(client.get_many(["py-absent", "py-many-3", "py-gone"]), {"py-many-3": MANY["py-many-3"]})
    same(client.set_many(MANY, noreply=False), [])
    for key, value in LARGE.items():
        same(client.set(key, value, noreply=False), True)
        same(client.get(key), value)
    same(client.get_many(list(LARGE)), LARGE)

    same(client.set("py-cas", b"first", noreply=False), True)
    value, version = client.gets("py-cas")
    same(value, b"first")
    same(client.cas("py-cas", b"second", version), True)
    same(client.cas("py-cas", b"never", version), False)
    same(client.cas("py-absent", b"never", version), None)
    value, newer = client.gets("py-cas")
    assert newer != version
    same(client.cas("py-cas", b"third", newer), True)

    same(client.set("py-sum", b"40", noreply=False), True)
    same(client.incr("py-sum", 3), 43)
    same(client.decr("py-sum", 2), 41)
    same(client.incr("py-absent", 1), None)
    same(client.set("py-zero", b"5", noreply=False), True)
    same(client.decr("py-zero", 9), 0)
    same(client.set("py-top", str(2**64 - 1), noreply=False), True)
    same(client.incr("py-top", 1), 0)
    try:
        client.incr("py-cas", 1)
        raise AssertionError("a text was counted")
    except MemcacheClientError:
        pass

    same(client.set("py-text", b"middle", noreply=False), True)
    same(client.append("py-text", b">", noreply=False), True)
    same(client.prepend("py-text", b"<", noreply=False), True)
    same(client.append("py-absent", b">", noreply=False), False)
    same(client.add("py-text", b"never", noreply=False), False)
    same(client.replace("py-absent", b"never", noreply=False), False)
    same(client.set("py-empty", b"", noreply=False), True)
    same(client.set("py-line", LEFT["py-line"], noreply=False), True)

    for flags in (0, 1, 7, 65536, 2**32 - 1):
        same(flagged.set(f"py-flags-{flags}", (b"f", flags), noreply=False), True)
        same(flagged.get(f"py-flags-{flags}"), (b"f", flags))

    # A time that has passed, a time to come, and one that is changed: nothing here waits.
    same(client.set("py-over", b"x", expire=-1, noreply=False), True)
    same(client.get("py-over"), None)
    same(client.set("py-later", b"later", expire=100000, noreply=False), True)
    same(client.get("py-later"), b"later")
    same(client.set("py-touched", b"x", noreply=False), True)
    same(client.touch("py-touched", -1, noreply=False), True)
    same(client.get("py-touched"), None)
    same(client.touch("py-absent", 10, noreply=False), False)

    same(client.set("py-deleted", b"x", noreply=False), True)
    same(client.delete("py-deleted", noreply=False), True)
    same(client.delete("py-deleted", noreply=False), False)

    try:
        client.set("py-too-large", b"x" * (1 << 20), noreply=False)
        raise AssertionError("a value over the limit was stored")
    except MemcacheServerError as error:
        same(error.args[0], b"object too large for cache")
    same(client.get("py-too-large"), None)
    assert int(client.stats()[b"cmd_set"]) > len(MANY)
    assert client.version()


def look(client, flagged):
    same(client.get_many(list(MANY)), MANY)
    same(client.get_many(list(LARGE)), LARGE)
    same(client.get_many(list(LEFT)), LEFT)
    same(client.get("py-later"), b"later")
    for flags in (0, 1, 7, 65536, 2**32 - 1):
        same(flagged.get(f"py-flags-{flags}"), (b"f", flags))
    for key in ("py-over", "py-touched", "py-deleted", "py-too-large", "py-absent"):
        same(client.get(key), None)
    # A version from before the server died is still the record's own.
    _, version = client.gets("py-cas")
    same(client.cas("py-cas", b"third", version), True)
    same(client.cas("py-cas", b"never", version), False)


def main():
    host, port = sys.argv[1].rsplit(":", 1)
    # Longer than any test may take: a server that hangs fails it.
    plain = Client((host, int(port)), timeout=60)
    flagged = Client((host, int(port)), timeout=60, serde=Flags())
    {"fill": fill, "look": look}[sys.argv[2]](plain, flagged)
    plain.quit()
    flagged.quit()
    print("ok")


main()
