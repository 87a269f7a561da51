//! The seccomp filter: refuses system calls whose effects Landlock rules cannot prevent. Its input
//! is the confinement of the command (`confine.rs`), the version of Landlock on this system
//! (`abi`), and the pids that it has to name, since a filter sees only the numbers that a call is
//! given.
//!
//! A refused call fails with "permission denied", so that programs report it. Calls for which
//! programs have a fallback on older systems fail with "not implemented".

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::io;

use landlock::ABI;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition,
    SeccompFilter, SeccompRule, apply_filter,
};

use super::{Confinement, Processes, Writes};
use crate::permissions::Network;

/// The calls of a filter, each with the cases in which it is refused. No case means: always.
type CallRules = BTreeMap<i64, Vec<SeccompRule>>;

/// System calls that the crate `libc` does not name on every architecture. Their numbers are the
/// same on all of them.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// `O_TMPFILE` without the bit of `O_DIRECTORY`, which it includes.
const TMPFILE: libc::c_int = libc::O_TMPFILE & !libc::O_DIRECTORY;

/// Operations of fcntl. The first three select the process that gets the I/O signals of an open
/// file, and the signal. The last one takes a lease: every other process that opens the file has to
/// wait.
const F_SETOWN: u64 = 8;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;
const F_SETLEASE: u64 = 1024;

/// Requests of ioctl: type into a terminal, paste into a console, set the receiver of signals.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;

/// Selects all processes of a user in ioprio_set.
const IOPRIO_WHO_USER: u64 = 3;

/// Tests whether the system supports seccomp, by a filter that only disables io_uring, which
/// programs can do without. Restricts the calling thread.
pub(super) fn probe() -> io::Result<()> {
    install(unconditionally([libc::SYS_io_uring_setup]), libc::ENOSYS)
}

/// Restricts the calling thread in everything that this version of Landlock does not cover.
pub(super) fn restrict(
    confinement: &Confinement,
    abi: ABI,
    processes: &Processes,
) -> io::Result<()> {
    let mut refused = refused_to_all();
    merge(&mut refused, network_calls(&confinement.network));
    merge(&mut refused, affinity_calls(processes));
    let mut unimplemented = unconditionally([
        libc::SYS_io_uring_setup,
        libc::SYS_io_setup,
        libc::SYS_clone3,
    ]);
    let mut unsupported = CallRules::new();
    match confinement.writes {
        Writes::Nothing => {
            merge(&mut refused, unconditionally(attribute_calls()));
            merge(&mut refused, unconditionally(extended_attribute_calls()));
        }
        Writes::Below(_) => {
            merge(&mut refused, set_id_bits());
            // Programs that copy files skip extended attributes if a file system does not support
            // them.
            merge(
                &mut unsupported,
                unconditionally(extended_attribute_calls()),
            );
            // The mode of openat2 is in memory, which a filter cannot read.
            merge(&mut unimplemented, unconditionally([libc::SYS_openat2]));
        }
    }
    if abi < ABI::V3 {
        merge(&mut refused, truncating_calls());
        merge(&mut unimplemented, unconditionally([libc::SYS_openat2]));
    }
    if abi < ABI::V6 {
        merge(&mut refused, signalling_calls(processes));
        merge(
            &mut unimplemented,
            unconditionally([libc::SYS_pidfd_send_signal]),
        );
    }
    install(ignored_calls(), 0)?;
    install(unimplemented, libc::ENOSYS)?;
    install(unsupported, libc::EOPNOTSUPP)?;
    install(refused, libc::EACCES)
}

/// Entries that refuse these calls with any arguments.
fn unconditionally(calls: impl IntoIterator<Item = i64>) -> CallRules {
    calls.into_iter().map(|call| (call, Vec::new())).collect()
}

/// Adds the cases of `more` to `calls`. A call that is refused without a condition stays so.
fn merge(calls: &mut CallRules, more: CallRules) {
    for (call, cases) in more {
        match calls.entry(call) {
            Entry::Vacant(entry) => drop(entry.insert(cases)),
            Entry::Occupied(mut entry) if cases.is_empty() || entry.get().is_empty() => {
                entry.get_mut().clear()
            }
            Entry::Occupied(mut entry) => entry.get_mut().extend(cases),
        }
    }
}

/// Calls that succeed without effect. The limit for core files stays at one byte: where core files
/// are piped to a program, Linux takes a limit of zero for no limit.
fn ignored_calls() -> CallRules {
    let cores = libc::RLIMIT_CORE as u64;
    CallRules::from([
        (libc::SYS_setrlimit, vec![equals(0, cores)]),
        (
            libc::SYS_prlimit64,
            vec![rule(vec![
                arg(0, Op::Eq, 0),
                arg(1, Op::Eq, cores),
                full_arg(2, Op::Ne, 0),
            ])],
        ),
    ])
}

/// The calls that are refused to every command.
fn refused_to_all() -> CallRules {
    let bit = |argument: u8, bit: libc::c_int| {
        rule(vec![arg(argument, Op::MaskedEq(bit as u64), bit as u64)])
    };
    let mut requests = changing_requests();
    requests.extend([
        equals(1, TIOCSTI),
        equals(1, TIOCLINUX),
        equals(1, FIOSETOWN),
        equals(1, SIOCSPGRP),
    ]);
    let mut calls = CallRules::from([
        (libc::SYS_ioctl, requests),
        (libc::SYS_fcntl, vec![equals(1, F_SETLEASE)]),
        // A rename that creates a device node.
        (
            libc::SYS_renameat2,
            vec![bit(4, libc::RENAME_WHITEOUT as libc::c_int)],
        ),
        // The system does not count a growing stack as memory.
        (libc::SYS_mmap, vec![bit(3, libc::MAP_GROWSDOWN)]),
        // The limits and the priority of another process, or of all processes of the user.
        (
            libc::SYS_prlimit64,
            vec![rule(vec![arg(0, Op::Ne, 0), full_arg(2, Op::Ne, 0)])],
        ),
        (
            libc::SYS_setpriority,
            vec![
                rule(vec![arg(1, Op::Ne, 0)]),
                equals(0, libc::PRIO_USER as u64),
            ],
        ),
        (
            libc::SYS_ioprio_set,
            vec![rule(vec![arg(1, Op::Ne, 0)]), equals(0, IOPRIO_WHO_USER)],
        ),
        // A user namespace of its own would give the command all capabilities.
        (libc::SYS_unshare, vec![bit(0, libc::CLONE_NEWUSER)]),
        (libc::SYS_clone, vec![bit(0, libc::CLONE_NEWUSER)]),
    ]);
    for call in [
        libc::SYS_sched_setscheduler,
        libc::SYS_sched_setparam,
        libc::SYS_sched_setattr,
    ] {
        calls.insert(call, vec![rule(vec![arg(0, Op::Ne, 0)])]);
    }
    // The keyrings of the user, other namespaces, and internals of the system.
    let closed = [
        libc::SYS_add_key,
        libc::SYS_keyctl,
        libc::SYS_request_key,
        libc::SYS_setns,
    ];
    merge(&mut calls, unconditionally(closed));
    merge(
        &mut calls,
        unconditionally([
            libc::SYS_bpf,
            libc::SYS_perf_event_open,
            libc::SYS_userfaultfd,
        ]),
    );
    calls
}

/// Refuses to change the CPU affinity of the kernel and the guard. Programs use this call for their
/// own threads, so only these two pids can be refused.
fn affinity_calls(processes: &Processes) -> CallRules {
    let protected: Vec<_> = processes
        .protected
        .iter()
        .map(|pid| equals(0, u64::from(*pid)))
        .collect();
    if protected.is_empty() {
        CallRules::new()
    } else {
        CallRules::from([(libc::SYS_sched_setaffinity, protected)])
    }
}

/// Requests (ioctl) that change a file, a folder or its file system through a file that is open for
/// reading, which Landlock does not prevent. All requests of the five types of file systems are
/// refused, except two groups: queries, and requests that copy extents to a file that is open for
/// writing.
fn changing_requests() -> Vec<SeccompRule> {
    const TYPE_MASK: u64 = 0xff00;
    const HARMLESS: [u64; 12] = [
        0x8008_6601, // FS_IOC_GETFLAGS
        0x8004_6601,
        0xc020_660b, // FS_IOC_FIEMAP
        0x8040_6686, // FS_IOC_MEASURE_VERITY
        0x8008_7601, // FS_IOC_GETVERSION
        0x8004_7601,
        0x801c_581f, // FS_IOC_FSGETXATTR
        0x4004_9409, // FICLONE
        0x4020_940d, // FICLONERANGE
        0xc018_9436, // FIDEDUPERANGE
        0x8004_7210, // FAT_IOCTL_GET_ATTRIBUTES
        0x8004_7213, // FAT_IOCTL_GET_VOLUME_ID
    ];
    let all_but_harmless = |kind: u64| {
        let harmless = HARMLESS
            .iter()
            .filter(|request| *request & TYPE_MASK == kind);
        let others = harmless.map(|request| arg(1, Op::Ne, *request));
        rule(
            [arg(1, Op::MaskedEq(TYPE_MASK), kind)]
                .into_iter()
                .chain(others)
                .collect(),
        )
    };
    [0x6600, 0x7600, 0x5800, 0x9400, 0x7200]
        .map(all_but_harmless)
        .into()
}

/// Refuses to set the set-user-id and set-group-id bits on an existing or a new file.
fn set_id_bits() -> CallRules {
    let bits = [libc::S_ISUID, libc::S_ISGID].map(u64::from);
    let sets_bits = |mode: u8| {
        bits.map(|bit| rule(vec![arg(mode, Op::MaskedEq(bit), bit)]))
            .to_vec()
    };
    // If no file is created, the mode argument is arbitrary, so the flags are checked too.
    let creates_with_bits = |flags: u8, mode: u8| -> Vec<SeccompRule> {
        let creating_flags = [libc::O_CREAT, TMPFILE].map(|flag| flag as u64);
        let cases = creating_flags
            .into_iter()
            .flat_map(|flag| bits.map(|bit| (flag, bit)));
        cases
            .map(|(flag, bit)| {
                rule(vec![
                    arg(flags, Op::MaskedEq(flag), flag),
                    arg(mode, Op::MaskedEq(bit), bit),
                ])
            })
            .collect()
    };
    let mut calls = CallRules::from([
        (libc::SYS_fchmod, sets_bits(1)),
        (libc::SYS_fchmodat, sets_bits(2)),
        (FCHMODAT2, sets_bits(2)),
        (libc::SYS_mknodat, sets_bits(2)),
        (libc::SYS_openat, creates_with_bits(2, 3)),
    ]);
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        (libc::SYS_chmod, sets_bits(1)),
        (libc::SYS_creat, sets_bits(1)),
        (libc::SYS_mknod, sets_bits(1)),
        (libc::SYS_open, creates_with_bits(1, 2)),
    ]);
    calls
}

/// Refuses sockets. A socket pair is allowed as a pipe, if its ends cannot send elsewhere.
fn network_calls(network: &Network) -> CallRules {
    const TYPE_MASK: u64 = 0xf;
    let family = |number: libc::c_int| arg(0, Op::Ne, number as u64);
    let kind = |number: libc::c_int| rule(vec![arg(1, Op::MaskedEq(TYPE_MASK), number as u64)]);
    let other_target = rule(vec![arg(0, Op::Ne, libc::AF_UNIX as u64)]);
    let pair = vec![
        other_target,
        kind(libc::SOCK_DGRAM),
        kind(libc::SOCK_RAW),
        kind(libc::SOCK_RDM),
    ];
    let pair = CallRules::from([(libc::SYS_socketpair, pair)]);
    // Listening binds an unbound socket to a port, which Landlock does not see.
    let listening = unconditionally([libc::SYS_listen, libc::SYS_accept, libc::SYS_accept4]);
    let mut calls = match network {
        Network::None => unconditionally([libc::SYS_socket, libc::SYS_connect, libc::SYS_bind]),
        Network::Ports(_) | Network::Machines => {
            // Landlock checks ports in TCP connect only. A fast open (MSG_FASTOPEN) bypasses that.
            let protocol = |number: libc::c_int| arg(2, Op::Ne, number as u64);
            let plain = [
                0,
                libc::IPPROTO_TCP,
                libc::IPPROTO_UDP,
                libc::IPPROTO_ICMP,
                libc::IPPROTO_ICMPV6,
            ];
            let other_protocol = rule(plain.map(protocol).into());
            let other_family = rule(vec![family(libc::AF_INET), family(libc::AF_INET6)]);
            let fast_open = |flags: u8| {
                let fast_open = libc::MSG_FASTOPEN as u64;
                vec![rule(vec![arg(flags, Op::MaskedEq(fast_open), fast_open)])]
            };
            CallRules::from([
                (libc::SYS_socket, vec![other_family, other_protocol]),
                (libc::SYS_sendto, fast_open(3)),
                (libc::SYS_sendmsg, fast_open(2)),
                (libc::SYS_sendmmsg, fast_open(3)),
            ])
        }
        Network::Any => return CallRules::new(),
    };
    merge(&mut calls, pair);
    merge(&mut calls, listening);
    calls
}

/// The calls that change modes, owners and times.
fn attribute_calls() -> Vec<i64> {
    let mut calls = vec![
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([
        libc::SYS_chmod,
        libc::SYS_chown,
        libc::SYS_lchown,
        libc::SYS_utime,
        libc::SYS_utimes,
        libc::SYS_futimesat,
    ]);
    calls
}

/// Extended attributes of files, which include access control lists, and the flags of files.
fn extended_attribute_calls() -> [i64; 9] {
    [
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SETXATTRAT,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        REMOVEXATTRAT,
        FILE_SETATTR,
    ]
}

/// Refuses to truncate files, which Landlock before version 3 does not restrict.
fn truncating_calls() -> CallRules {
    let truncates_read_only = |flags: u8| {
        let mask = (libc::O_ACCMODE | libc::O_TRUNC) as u64;
        rule(vec![arg(flags, Op::MaskedEq(mask), libc::O_TRUNC as u64)])
    };
    let mut calls = CallRules::from([
        (libc::SYS_truncate, Vec::new()),
        (libc::SYS_openat, vec![truncates_read_only(2)]),
    ]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_open, vec![truncates_read_only(1)]);
    calls
}

/// Refuses signals to other processes, which Landlock before version 6 does not restrict. The pids
/// of a command are not known beforehand, so only signals to its own process group are allowed.
fn signalling_calls(processes: &Processes) -> CallRules {
    let command = processes.command.map_or(0, u64::from);
    let group = u64::from(processes.command.map_or(0, u32::wrapping_neg));
    let other_target = rule(vec![
        arg(0, Op::Ne, 0),
        arg(0, Op::Ne, command),
        arg(0, Op::Ne, group),
    ]);
    let to_protected: Vec<_> = processes
        .protected
        .iter()
        .map(|pid| equals(0, u64::from(*pid)))
        .collect();
    let signal_settings = [F_SETOWN, F_SETSIG, F_SETOWN_EX].map(|operation| equals(1, operation));
    let mut calls = CallRules::from([
        (libc::SYS_kill, vec![other_target]),
        (libc::SYS_tkill, Vec::new()),
        (libc::SYS_rt_sigqueueinfo, Vec::new()),
        (libc::SYS_fcntl, signal_settings.into()),
    ]);
    if !to_protected.is_empty() {
        calls.insert(libc::SYS_tgkill, to_protected.clone());
        calls.insert(libc::SYS_rt_tgsigqueueinfo, to_protected);
    }
    calls
}

fn install(calls: CallRules, errno: libc::c_int) -> io::Result<()> {
    if calls.is_empty() {
        return Ok(());
    }
    let target = std::env::consts::ARCH
        .try_into()
        .map_err(io::Error::other)?;
    let (default_action, refusal) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
    let filter = SeccompFilter::new(with_x32_calls(calls), default_action, refusal, target)
        .map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

/// On x86-64, some systems accept a second set of call numbers (x32): the filter covers both.
#[cfg(target_arch = "x86_64")]
fn with_x32_calls(calls: CallRules) -> CallRules {
    const X32: i64 = 0x4000_0000;
    let x32_number = |call| match call {
        libc::SYS_ioctl => 514,
        libc::SYS_sendmsg => 518,
        libc::SYS_sendmmsg => 538,
        libc::SYS_rt_sigqueueinfo => 524,
        libc::SYS_rt_tgsigqueueinfo => 536,
        call => call,
    };
    let x32_calls: Vec<_> = calls
        .iter()
        .map(|(call, cases)| (X32 | x32_number(*call), cases.clone()))
        .collect();
    calls.into_iter().chain(x32_calls).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn with_x32_calls(calls: CallRules) -> CallRules {
    calls
}

fn equals(argument: u8, value: u64) -> SeccompRule {
    rule(vec![arg(argument, Op::Eq, value)])
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("a case has a condition")
}

/// A condition on the lower half of an argument: Linux ignores the upper half of an `int`.
fn arg(number: u8, op: Op, value: u64) -> SeccompCondition {
    SeccompCondition::new(number, Len::Dword, op, value & 0xffff_ffff)
        .expect("a call has six arguments")
}

/// A condition on all 64 bits of an argument.
fn full_arg(number: u8, op: Op, value: u64) -> SeccompCondition {
    SeccompCondition::new(number, Len::Qword, op, value).expect("a call has six arguments")
}
