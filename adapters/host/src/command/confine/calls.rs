//! seccomp: system calls that are refused, since no rule about files can refuse what they do.
//!
//! What is refused answers "permission denied", so that programs say so. What programs do without where a system is too old for
//! it answers "not implemented".

use std::collections::BTreeMap;
use std::io;

use landlock::ABI;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Len, SeccompCmpOp as Op, SeccompCondition, SeccompFilter,
    SeccompRule, apply_filter,
};

use super::{Confinement, Processes, Writes};
use crate::permissions::Network;

/// The calls of a filter: each with the cases in which it is refused, none of which means always.
type Calls = BTreeMap<i64, Vec<SeccompRule>>;

/// Calls of Linux that the crate of numbers does not name everywhere. They have one number on every kind of machine.
const FCHMODAT2: i64 = 452;
const SETXATTRAT: i64 = 463;
const REMOVEXATTRAT: i64 = 466;
const FILE_SETATTR: i64 = 469;

/// To whom an open file sends signals, and which.
const F_SETOWN: u64 = 8;
const F_SETSIG: u64 = 10;
const F_SETOWN_EX: u64 = 15;

/// Requests to an open file: typing into a terminal, pasting into a console, to whom its signals go, making it read-only for good.
const TIOCSTI: u64 = 0x5412;
const TIOCLINUX: u64 = 0x541c;
const FIOSETOWN: u64 = 0x8901;
const SIOCSPGRP: u64 = 0x8902;
const FS_IOC_ENABLE_VERITY: u64 = 0x4080_6685;

/// Sets a filter that refuses nothing anybody does. Restricts the calling thread.
pub(super) fn try_out() -> io::Result<()> {
    install(Calls::from([(libc::SYS_io_uring_setup, Vec::new())]), libc::ENOSYS)
}

/// Restricts the calling thread in what a Landlock of this version leaves open.
pub(super) fn restrict(confinement: &Confinement, abi: ABI, processes: &Processes) -> io::Result<()> {
    let mut missing = Calls::from([(libc::SYS_io_uring_setup, Vec::new())]);
    let mut refused = everywhere();
    refused.extend(network(&confinement.network));
    refused.extend(scheduling(processes));
    match confinement.writes {
        Writes::Nothing => {
            refused.extend(attributes().into_iter().map(|call| (call, Vec::new())));
            refused.entry(libc::SYS_ioctl).or_default().extend(changing_requests());
        }
        Writes::Below(_) => refused.extend(rights_of_files()),
    }
    if abi < ABI::V3 {
        refused.extend(truncation());
        missing.insert(libc::SYS_openat2, Vec::new());
    }
    if abi < ABI::V6 {
        refused.extend(signals(processes));
        refused.entry(libc::SYS_ioctl).or_default().extend([equals(1, FIOSETOWN), equals(1, SIOCSPGRP)]);
        missing.insert(libc::SYS_pidfd_send_signal, Vec::new());
    }
    install(missing, libc::ENOSYS)?;
    install(refused, libc::EACCES)
}

/// What no command does.
fn everywhere() -> Calls {
    Calls::from([
        (libc::SYS_ioctl, vec![equals(1, TIOCSTI), equals(1, TIOCLINUX), equals(1, FS_IOC_ENABLE_VERITY)]),
        // The limits and the priority of another process.
        (libc::SYS_prlimit64, vec![rule(vec![arg(0, Op::Ne, 0), wide(2, Op::Ne, 0)])]),
        (libc::SYS_setpriority, vec![rule(vec![arg(1, Op::Ne, 0)])]),
        (libc::SYS_ioprio_set, vec![rule(vec![arg(1, Op::Ne, 0)])]),
        // The keys that the system keeps for the user.
        (libc::SYS_add_key, Vec::new()),
        (libc::SYS_keyctl, Vec::new()),
        (libc::SYS_request_key, Vec::new()),
        (libc::SYS_bpf, Vec::new()),
        (libc::SYS_perf_event_open, Vec::new()),
        (libc::SYS_userfaultfd, Vec::new()),
    ])
}

/// Scheduling of the kernel and the guard. Programs name their own threads in these calls, so only these two numbers can be refused.
fn scheduling(processes: &Processes) -> Calls {
    let keepers: Vec<_> = processes.keepers.iter().map(|keeper| equals(0, u64::from(*keeper))).collect();
    let calls =
        [libc::SYS_sched_setaffinity, libc::SYS_sched_setscheduler, libc::SYS_sched_setparam, libc::SYS_sched_setattr];
    calls.into_iter().filter(|_| !keepers.is_empty()).map(|call| (call, keepers.clone())).collect()
}

/// Requests (ioctl) that change a file, a folder or its file system through a handle that is open for reading: all of the four kinds for
/// file systems, except those that only query.
fn changing_requests() -> Vec<SeccompRule> {
    const KIND: u64 = 0xff00;
    const QUERIES: [u64; 7] =
        [0x8008_6601, 0x8004_6601, 0xc020_660b, 0x8008_7601, 0x8004_7601, 0x801c_581f, 0x8040_6686];
    let all_but_queries = |kind: u64| {
        let queries = QUERIES.iter().filter(|request| *request & KIND == kind).map(|request| arg(1, Op::Ne, *request));
        rule([arg(1, Op::MaskedEq(KIND), kind)].into_iter().chain(queries).collect())
    };
    [0x6600, 0x7600, 0x5800, 0x9400].map(all_but_queries).into()
}

/// Setting the bits by which a program runs with the rights of its owner or group.
fn rights_of_files() -> Calls {
    let given = |mode: u8| {
        [libc::S_ISUID, libc::S_ISGID].map(|bit| rule(vec![arg(mode, Op::MaskedEq(bit.into()), bit.into())])).to_vec()
    };
    let mut calls = Calls::from([(libc::SYS_fchmod, given(1)), (libc::SYS_fchmodat, given(2)), (FCHMODAT2, given(2))]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_chmod, given(1));
    calls
}

/// Sockets. A pair is a pipe, unless its ends can be sent elsewhere.
fn network(network: &Network) -> Calls {
    const KIND: u64 = 0xf;
    let family = |number: libc::c_int| arg(0, Op::Ne, number as u64);
    let kind = |number: libc::c_int| rule(vec![arg(1, Op::MaskedEq(KIND), number as u64)]);
    let elsewhere = rule(vec![arg(0, Op::Ne, libc::AF_UNIX as u64)]);
    let pair = vec![elsewhere, kind(libc::SOCK_DGRAM), kind(libc::SOCK_RAW), kind(libc::SOCK_RDM)];
    let pair = (libc::SYS_socketpair, pair);
    match network {
        Network::None => Calls::from([(libc::SYS_socket, Vec::new()), (libc::SYS_connect, Vec::new()), pair]),
        Network::Ports(_) | Network::Machines => {
            // Landlock knows the ports of TCP, and of TCP only where it connects first.
            let protocol = |number: libc::c_int| arg(2, Op::Ne, number as u64);
            let plain = [0, libc::IPPROTO_TCP, libc::IPPROTO_UDP, libc::IPPROTO_ICMP, libc::IPPROTO_ICMPV6];
            let other_protocol = rule(plain.map(protocol).into());
            let other_family = rule(vec![family(libc::AF_INET), family(libc::AF_INET6)]);
            let fast_open = |flags: u8| {
                let fast_open = libc::MSG_FASTOPEN as u64;
                vec![rule(vec![arg(flags, Op::MaskedEq(fast_open), fast_open)])]
            };
            Calls::from([
                (libc::SYS_socket, vec![other_family, other_protocol]),
                (libc::SYS_sendto, fast_open(3)),
                (libc::SYS_sendmsg, fast_open(2)),
                (libc::SYS_sendmmsg, fast_open(3)),
                pair,
            ])
        }
        Network::Any => Calls::new(),
    }
}

/// What changes a file without writing into it.
fn attributes() -> Vec<i64> {
    let mut calls = vec![
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
        FCHMODAT2,
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_utimensat,
        libc::SYS_setxattr,
        libc::SYS_lsetxattr,
        libc::SYS_fsetxattr,
        SETXATTRAT,
        libc::SYS_removexattr,
        libc::SYS_lremovexattr,
        libc::SYS_fremovexattr,
        REMOVEXATTRAT,
        FILE_SETATTR,
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

/// Before version 3 Landlock does not see that a file is cut off.
fn truncation() -> Calls {
    let cuts_for_reading = |flags: u8| {
        let mask = (libc::O_ACCMODE | libc::O_TRUNC) as u64;
        rule(vec![arg(flags, Op::MaskedEq(mask), libc::O_TRUNC as u64)])
    };
    let mut calls = Calls::from([(libc::SYS_truncate, Vec::new()), (libc::SYS_openat, vec![cuts_for_reading(2)])]);
    #[cfg(target_arch = "x86_64")]
    calls.insert(libc::SYS_open, vec![cuts_for_reading(1)]);
    calls
}

/// Before version 6 Landlock lets signals out. A thread's number stands for its process, and threads come and go: so what is
/// allowed is named, the command's own group.
fn signals(processes: &Processes) -> Calls {
    let own = processes.own.map_or(0, u64::from);
    let group = u64::from(processes.own.map_or(0, u32::wrapping_neg));
    let elsewhere = rule(vec![arg(0, Op::Ne, 0), arg(0, Op::Ne, own), arg(0, Op::Ne, group)]);
    let to_keepers: Vec<_> = processes.keepers.iter().map(|keeper| equals(0, u64::from(*keeper))).collect();
    let asks_for_signals = [F_SETOWN, F_SETSIG, F_SETOWN_EX].map(|command| equals(1, command));
    let mut calls = Calls::from([
        (libc::SYS_kill, vec![elsewhere]),
        (libc::SYS_tkill, Vec::new()),
        (libc::SYS_rt_sigqueueinfo, Vec::new()),
        (libc::SYS_fcntl, asks_for_signals.into()),
    ]);
    if !to_keepers.is_empty() {
        calls.insert(libc::SYS_tgkill, to_keepers.clone());
        calls.insert(libc::SYS_rt_tgsigqueueinfo, to_keepers);
    }
    calls
}

fn install(calls: Calls, errno: libc::c_int) -> io::Result<()> {
    let target = std::env::consts::ARCH.try_into().map_err(io::Error::other)?;
    let (others, these) = (SeccompAction::Allow, SeccompAction::Errno(errno as u32));
    let filter = SeccompFilter::new(in_both_forms(calls), others, these, target).map_err(io::Error::other)?;
    let program: BpfProgram = filter.try_into().map_err(io::Error::other)?;
    apply_filter(&program).map_err(io::Error::other)
}

/// On x86-64 a program may make its calls by a second set of numbers (x32), where the system has it.
#[cfg(target_arch = "x86_64")]
fn in_both_forms(calls: Calls) -> Calls {
    const X32: i64 = 0x4000_0000;
    let other = |call| match call {
        libc::SYS_ioctl => 514,
        libc::SYS_sendmsg => 518,
        libc::SYS_sendmmsg => 538,
        libc::SYS_rt_sigqueueinfo => 524,
        libc::SYS_rt_tgsigqueueinfo => 536,
        call => call,
    };
    let second: Vec<_> = calls.iter().map(|(call, cases)| (X32 | other(*call), cases.clone())).collect();
    calls.into_iter().chain(second).collect()
}

#[cfg(not(target_arch = "x86_64"))]
fn in_both_forms(calls: Calls) -> Calls {
    calls
}

fn equals(argument: u8, value: u64) -> SeccompRule {
    rule(vec![arg(argument, Op::Eq, value)])
}

fn rule(conditions: Vec<SeccompCondition>) -> SeccompRule {
    SeccompRule::new(conditions).expect("a case has a condition")
}

/// A condition on the lower half of an argument, which is all that the kernel looks at in an `int`.
fn arg(number: u8, op: Op, value: u64) -> SeccompCondition {
    SeccompCondition::new(number, Len::Dword, op, value & 0xffff_ffff).expect("a call has six arguments")
}

fn wide(number: u8, op: Op, value: u64) -> SeccompCondition {
    SeccompCondition::new(number, Len::Qword, op, value).expect("a call has six arguments")
}
