//! Whether this system can confine commands: the operating system is asked, and not the code that
//! is tested.

use std::process::Command;

/// Prints the version of Landlock, 0 or less where there is none, and whether filters of system
/// calls are known.
const QUESTION: &str = "import ctypes, os; print(ctypes.CDLL(None).syscall(444, None, 0, 1), \
                        os.path.exists('/proc/sys/kernel/seccomp/actions_avail'))";

/// Whether it has Landlock and seccomp.
pub(crate) fn system_confines() -> bool {
    let asked = Command::new("python3")
        .args(["-c", QUESTION])
        .output()
        .expect("the tests need python3");
    let answer = String::from_utf8(asked.stdout).expect("two words");
    let (version, has_seccomp) = answer
        .trim()
        .split_once(' ')
        .unwrap_or_else(|| panic!("{answer:?}"));
    version.parse::<i32>().is_ok_and(|version| version > 0) && has_seccomp == "True"
}
