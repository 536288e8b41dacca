"""Runs one command through a foster helper: python3 minimal_client.py HELPER COMMAND [ARG...]"""
import array, os, socket, struct, subprocess, sys

VERSION = 1
HELLO, SPAWN, WAIT = 0, 2, 4
WELCOME, SPAWNED, EXITED, ENDED = 0, 3, 6, 7

def text(value):                        # bytes: a u64 length, then the bytes
    return struct.pack("<Q", len(value)) + value

def texts(values):                      # a list: a u64 count, then the elements
    return struct.pack("<Q", len(values)) + b"".join(map(text, values))

def spec(argv, env, fds, grace):
    out = text(argv[0]) + texts(argv) + texts(env)
    out += b"\0" + b"\1" + text(os.fsencode(os.getcwd()))  # directory_base: None, directory: Some
    out += struct.pack("<Q", fds)
    for fd in range(fds):               # target fd comes from the passed descriptor fd
        out += struct.pack("<iI", fd, fd)
    out += b"\0\0" + struct.pack("<Q", 0)       # terminal, umask: None; no resource_limits
    out += b"\0" * 5                    # nice, oom_score_adj, uid, gid, groups: None
    out += b"\0" + b"\0" + struct.pack("<Q", 0)  # no_new_privs; death_signal: None; blocked
    out += struct.pack("<I", 0) + b"\0" + b"\0\0\0"  # level: Auto; require: None; limits: None
    out += struct.pack("<IQ", 1, grace)  # on_exit: End{grace}
    out += b"\0" + struct.pack("<Q", grace) + b"\0"  # deadline: None; grace; first_signal: None
    return out + b"\0\0" + text(b"")    # detachable, gated: no; label

class Helper:
    def __init__(self, path):
        self.sock, theirs = socket.socketpair()
        self.process = subprocess.Popen([path], stdin=theirs)
        theirs.close()                  # or the helper's death would go unseen
        self.sock.settimeout(60)
        self.inbox, self.last_id = b"", 0

    def send(self, tag, fields, fds=()):
        self.last_id += 1
        body = struct.pack("<QI", self.last_id, tag) + fields
        frame = struct.pack("<IB3x", len(body), len(fds)) + body
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
        sent = self.sock.sendmsg([frame], rights)
        self.sock.sendall(frame[sent:])
        return self.last_id

    def need(self, count):
        while len(self.inbox) < count:
            data, fds, _, _ = socket.recv_fds(self.sock, 65536, 253)
            for fd in fds:              # the leader's pidfd, which this client does not use
                os.close(fd)
            if not data:
                raise SystemExit(f"the helper is gone: exit code {self.process.wait()}")
            self.inbox += data

    def reply(self, wanted, tag):
        while True:                     # replies come in any order; this client asks in order
            self.need(8)
            length = struct.unpack_from("<I", self.inbox)[0]
            self.need(8 + length)
            body, self.inbox = self.inbox[8:8 + length], self.inbox[8 + length:]
            request, got = struct.unpack_from("<QI", body)
            if request == wanted:
                if got != tag:
                    raise SystemExit(f"reply {got} instead of {tag}: {body[12:].hex()}")
                return body[12:]

helper = Helper(sys.argv[1])
helper.reply(helper.send(HELLO, struct.pack("<I", VERSION) + text(b"minimal") + b"\0"), WELCOME)
argv = [os.fsencode(arg) for arg in sys.argv[2:]]
env = [key + b"=" + value for key, value in os.environb.items()]
session = struct.pack("<Q", 1)
spawn = helper.send(SPAWN, session + spec(argv, env, 3, 1_000_000), (0, 1, 2))
until_exit = helper.send(WAIT, session + struct.pack("<I", 0))
until_end = helper.send(WAIT, session + struct.pack("<I", 1))
helper.reply(spawn, SPAWNED)
status = struct.unpack_from("<i", helper.reply(until_exit, EXITED))[0]
helper.reply(until_end, ENDED)          # its background processes are gone, too
helper.sock.close()                     # hangup: the helper ends what is left, and exits
helper.process.wait()
sys.exit(os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status))
