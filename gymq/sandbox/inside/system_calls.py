"""The system calls that a program may make: those of ordinary programs, languages and compilers, and no others.

Each has its number on x86-64 and, where it differs, on arm64: <asm/unistd_64.h>, <asm-generic/unistd.h>.
"""

from __future__ import annotations

import errno
import os
import struct

from . import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:  # the import would take longer than the rest
    from collections.abc import Iterator, Sequence

_ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_ALLOWED = """
read:0:63 write:1:64 open:2:- close:3:57 stat:4:- fstat:5:80 lstat:6:- poll:7:- lseek:8:62 mprotect:10:226
munmap:11:215 brk:12:214 rt_sigaction:13:134 rt_sigprocmask:14:135 rt_sigreturn:15:139 pread64:17:67 pwrite64:18:68
readv:19:65 writev:20:66 access:21:- pipe:22:- select:23:- sched_yield:24:124 mremap:25:216 msync:26:227
mincore:27:232 madvise:28:233 dup:32:23 dup2:33:- pause:34:- nanosleep:35:101 getitimer:36:102 alarm:37:-
setitimer:38:103 getpid:39:172 connect:42:203 accept:43:202 sendto:44:206 recvfrom:45:207 sendmsg:46:211
recvmsg:47:212 shutdown:48:210 bind:49:200 listen:50:201 getsockname:51:204 getpeername:52:205 getsockopt:55:209
fork:57:- vfork:58:- execve:59:221 exit:60:93 wait4:61:260 uname:63:160 flock:73:32 fsync:74:82 fdatasync:75:83
truncate:76:45 ftruncate:77:46 getdents:78:- getcwd:79:17 chdir:80:49 fchdir:81:50 rename:82:- mkdir:83:- rmdir:84:-
creat:85:- link:86:- unlink:87:- symlink:88:- readlink:89:- chmod:90:- fchmod:91:52 chown:92:- fchown:93:55
lchown:94:- umask:95:166 gettimeofday:96:169 getrlimit:97:163 getrusage:98:165 sysinfo:99:179 times:100:153
getuid:102:174 getgid:104:176 setuid:105:146 setgid:106:144 geteuid:107:175 getegid:108:177 getppid:110:173
getpgrp:111:- setsid:112:157 setreuid:113:145 setregid:114:143 getgroups:115:158 setgroups:116:159 setresuid:117:147
getresuid:118:148 setresgid:119:149 getresgid:120:150 getpgid:121:155 setfsuid:122:151 setfsgid:123:152 getsid:124:156
capget:125:90 capset:126:91 rt_sigpending:127:136 rt_sigtimedwait:128:137 rt_sigsuspend:130:133 sigaltstack:131:132
utime:132:- mknod:133:- statfs:137:43 fstatfs:138:44 getpriority:140:141 sched_getparam:143:121
sched_getscheduler:145:120 sched_get_priority_max:146:125 sched_get_priority_min:147:126 sched_rr_get_interval:148:127
mlock:149:228 munlock:150:229 mlockall:151:230 munlockall:152:231 prctl:157:167 arch_prctl:158:- setrlimit:160:164
gettid:186:178 readahead:187:213 setxattr:188:5 lsetxattr:189:6 fsetxattr:190:7 getxattr:191:8 lgetxattr:192:9
fgetxattr:193:10 listxattr:194:11 llistxattr:195:12 flistxattr:196:13 removexattr:197:14 lremovexattr:198:15
fremovexattr:199:16 time:201:- futex:202:98 sched_getaffinity:204:123 epoll_create:213:- getdents64:217:61
set_tid_address:218:96 restart_syscall:219:128 fadvise64:221:223 timer_create:222:107 timer_settime:223:110
timer_gettime:224:108 timer_getoverrun:225:109 timer_delete:226:111 clock_gettime:228:113 clock_getres:229:114
clock_nanosleep:230:115 exit_group:231:94 epoll_wait:232:- epoll_ctl:233:21 utimes:235:- waitid:247:95
ioprio_get:252:31 openat:257:56 mkdirat:258:34 mknodat:259:33 fchownat:260:54 futimesat:261:- newfstatat:262:79
unlinkat:263:35 renameat:264:38 linkat:265:37 symlinkat:266:36 readlinkat:267:78 fchmodat:268:53 faccessat:269:48
pselect6:270:72 ppoll:271:73 set_robust_list:273:99 get_robust_list:274:100 sync_file_range:277:84 utimensat:280:88
epoll_pwait:281:22 signalfd:282:- timerfd_create:283:85 eventfd:284:- fallocate:285:47 timerfd_settime:286:86
timerfd_gettime:287:87 accept4:288:242 signalfd4:289:74 eventfd2:290:19 epoll_create1:291:20 dup3:292:24 pipe2:293:59
preadv:295:69 pwritev:296:70 recvmmsg:299:243 sendmmsg:307:269 getcpu:309:168 sched_getattr:315:275 renameat2:316:276
getrandom:318:278 execveat:322:281 membarrier:324:283 mlock2:325:284 copy_file_range:326:285 preadv2:327:286
pwritev2:328:287 pkey_mprotect:329:288 pkey_alloc:330:289 pkey_free:331:290 statx:332:291 rseq:334:293 openat2:437
close_range:436 faccessat2:439 epoll_pwait2:441 get_mempolicy:239:236 futex_waitv:449
"""
_WITH_RULES = """
mmap:9:222 socket:41:198 socketpair:53:199 setsockopt:54:208 fcntl:72:25 ioctl:16:29 clone:56:220
setpriority:141:140 ioprio_set:251:30 sendfile:40:71 splice:275:76 tee:276:77 kill:62:129 tkill:200:130 tgkill:234:131
rt_sigqueueinfo:129:138 rt_tgsigqueueinfo:297:240 prlimit64:302:261 setpgid:109:154 sched_setscheduler:144:119
sched_setparam:142:118 sched_setaffinity:203:122 sched_setattr:314:274 pidfd_open:434 pidfd_send_signal:424
"""
# By which one process stops, ends or hampers another one, which is named by the first argument.
_AIMED = (
    "kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo prlimit64 setpgid pidfd_open "
    "sched_setscheduler sched_setparam sched_setaffinity sched_setattr"
)

_CLONE_NEWUSER, _MAP_HUGETLB = 0x10000000, 0x40000
_AF_UNIX, _AF_INET, _AF_INET6, _SOL_SOCKET = 1, 2, 10, 1
_PROTOCOLS = (0, 6, 17)  # the usual one, TCP, UDP
_BUFFER_OPTIONS = (7, 8, 32, 33)  # SO_SNDBUF, SO_RCVBUF, SO_SNDBUFFORCE, SO_RCVBUFFORCE
# F_OFD_SETLK, F_OFD_SETLKW: locks of an open file, for which no process is named. F_SETLEASE, F_NOTIFY: a process
# that opens a file of the same user waits for the holder of a lease. F_SETOWN, F_SETSIG, F_SETOWN_EX: any signal to any
# process.
_FILE_CONTROLS = (37, 38, 1024, 1026, 8, 10, 15)
_OWNER_CONTROLS = (0x8901, 0x8902)  # FIOSETOWN, SIOCSPGRP
_ONE_PROCESS = {"setpriority": 0, "ioprio_set": 1}  # the first argument of those that else set a group or a user

# A program of struct sock_filter: classic BPF over struct seccomp_data. Jumps count the instructions that are skipped.
_LOAD, _EQUAL, _AT_LEAST, _BITS, _GIVE = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, (16, 24, 32, 40)  # offsets; of arguments the lower half
_ALLOW, _KILL = 0x7FFF0000, 0x80000000
_REFUSE, _MISSING, _INVALID = (0x00050000 | number for number in (errno.EPERM, errno.ENOSYS, errno.EINVAL))


def refuse_others(network: bool, guarded: tuple[int, ...] = ()) -> None:
    """Install the filter for this process and all that come from it; a refused call fails with EPERM or ENOSYS.

    Args:
        network: there is a network namespace, so that sockets of the internet's families reach nothing. Without one
            there are no sockets but pairs.
        guarded: processes of the same user that must not be signalled or hampered.
    """
    machine = os.uname().machine
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOTSUP, f"no system call filter for {machine}")
    kernel.filter_system_calls(b"".join(_filter(machine, network, guarded)))


def _filter(machine: str, network: bool, guarded: tuple[int, ...]) -> Iterator[bytes]:
    yield _instruction(_LOAD, _ARCHITECTURE)
    yield _instruction(_EQUAL, _ARCHITECTURES[machine], 1)
    yield _instruction(_GIVE, _KILL)
    yield _instruction(_LOAD, _NUMBER)
    rules = _rules(network, guarded)
    for name, number in _numbers(_WITH_RULES, machine).items():
        body = [*rules.get(name, []), _instruction(_GIVE, _ALLOW)]
        yield from (_instruction(_EQUAL, number, 0, len(body)), *body)
    for number in _numbers(_ALLOWED, machine).values():
        yield _instruction(_EQUAL, number, 0, 1) + _instruction(_GIVE, _ALLOW)
    # Newer calls are missing rather than refused, so that libraries use the older ones.
    yield _instruction(_AT_LEAST, 424, 0, 1)
    yield _instruction(_GIVE, _MISSING)
    yield _instruction(_GIVE, _REFUSE)


def _rules(network: bool, guarded: tuple[int, ...]) -> dict[str, list[bytes]]:
    """Return for calls what is refused of them; what is left is allowed."""
    families = [_AF_UNIX, _AF_INET, _AF_INET6] if network else []
    rules = {
        "socket": [*_unless(0, families), *_unless(2, _PROTOCOLS)],
        "socketpair": _unless(0, [_AF_UNIX]),
        "setsockopt": _if(1, [_SOL_SOCKET], _if(2, _BUFFER_OPTIONS)),
        "fcntl": _if(1, _FILE_CONTROLS),
        "ioctl": _if(1, _OWNER_CONTROLS),
        # The machine sets these pages aside for others, and no control group of memory counts them.
        "mmap": _if_any_bit(3, _MAP_HUGETLB),
        "clone": _if_any_bit(0, _CLONE_NEWUSER),
    }
    # A socket or pipe holds the whole page of a byte that is moved into it, also when its file is gone. With this error
    # programs read and write instead.
    rules |= {name: [_instruction(_GIVE, _INVALID)] for name in ("sendfile", "splice", "tee")}
    rules |= {name: [*_unless(0, [which]), *_unless(1, [0])] for name, which in _ONE_PROCESS.items()}
    if guarded:
        everybody = 0xFFFFFFFF  # kill(-1, ...)
        rules |= {name: _if(0, [*guarded, everybody]) for name in _AIMED.split()}
        rules["pidfd_send_signal"] = [_instruction(_GIVE, _REFUSE)]
    return rules


def _numbers(table: str, machine: str) -> dict[str, int]:
    found = {}
    for entry in table.split():
        name, number, *of_arm64 = entry.split(":")
        if machine == "aarch64":
            number = (of_arm64 or [number])[0]
        if number != "-":
            found[name] = int(number)
    return found


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _if(argument: int, values: Sequence[int], then: list[bytes] | None = None) -> list[bytes]:
    """Refuse, or do something else, if the argument is one of the values."""
    body = then or [_instruction(_GIVE, _REFUSE)]
    tests = [_instruction(_EQUAL, value, len(values) - 1 - at, 0) for at, value in enumerate(values[:-1])]
    last = _instruction(_EQUAL, values[-1], 0, len(body))
    return [_instruction(_LOAD, _ARGUMENTS[argument]), *tests, last, *body]


def _if_any_bit(argument: int, bits: int) -> list[bytes]:
    return [_instruction(_LOAD, _ARGUMENTS[argument]), _instruction(_BITS, bits, 0, 1), _instruction(_GIVE, _REFUSE)]


def _unless(argument: int, values: Sequence[int]) -> list[bytes]:
    tests = [_instruction(_EQUAL, value, len(values) - at) for at, value in enumerate(values)]
    return [_instruction(_LOAD, _ARGUMENTS[argument]), *tests, _instruction(_GIVE, _REFUSE)]
