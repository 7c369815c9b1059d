//! What this process may do, and how to be allowed more.

use rtscope_model::{environment::Permission, schedule::Placement};
use rtscope_sys::{
    process::{self, Resource},
    sched,
};

/// Asks the kernel. Whether a real-time thread is allowed is tried, not guessed: limits, capabilities,
/// control groups and security modules all have a say.
#[must_use]
pub fn collect() -> Permission {
    Permission {
        root: process::is_root(),
        real_time: sched::may_be_real_time(),
        rtprio_limit: process::limit(Resource::RtPriority).0,
        memlock_limit_bytes: process::limit(Resource::LockedMemory).0,
    }
}

/// The three ways to be allowed real-time threads, least power first, each with what to type.
#[must_use]
pub fn permission_advice(permission: &Permission) -> [String; 3] {
    let program = std::env::current_exe();
    let program = program.map_or_else(|_| "rtscope".to_owned(), |path| path.display().to_string());
    let priority =
        permission.rtprio_limit.map_or("unlimited".to_owned(), |limit| limit.to_string());
    let memory = permission
        .memlock_limit_bytes
        .map_or("unlimited".to_owned(), |bytes| format!("{} KiB", bytes / 1024));
    [
        format!(
            "Raise your limits (now: rtprio {priority}, memlock {memory}): put these two lines into \
             /etc/security/limits.d/rtscope.conf, with your own user name, and log in again: \
             \"USER - rtprio 99\" and \"USER - memlock unlimited\"."
        ),
        format!(
            "Give this program the two capabilities it needs: \
             sudo setcap cap_sys_nice,cap_ipc_lock+ep '{program}'. Repeat this for each new copy of the program."
        ),
        "Run it as root: sudo rtscope ... Only root may also change system settings (--set)."
            .to_owned(),
    ]
}

/// The three ways for what a thread was refused: a real-time policy, or a nice value below its own.
#[must_use]
pub fn placement_advice(asked: &Placement) -> [String; 3] {
    let [limits, capabilities, root] = permission_advice(&collect());
    let nice = || {
        "Let yourself lower nice values: put this line into /etc/security/limits.d/rtscope.conf, \
         with your own user name, and log in again: \"USER - nice -20\"."
            .to_owned()
    };
    [if asked.policy.is_real_time() { limits } else { nice() }, capabilities, root]
}

/// The three ways, one on a line.
#[must_use]
pub fn do_one_of(ways: &[String; 3]) -> String {
    format!("do one of these:\n  - {}", ways.join("\n  - "))
}

#[cfg(test)]
mod tests {
    use rtscope_model::schedule::Policy;

    use super::*;

    #[test]
    fn a_refused_nice_value_has_a_limit_of_its_own() {
        let asked = |policy| Placement {
            policy,
            priority: 0,
            nice: -5,
            budget: None,
            cpus: rtscope_model::cpu::CpuSet::default(),
        };
        let ways = do_one_of(&placement_advice(&asked(Policy::Other)));
        for way in ["\"USER - nice -20\"", "setcap", "sudo"] {
            assert!(ways.contains(way), "{way}: {ways}");
        }
        assert!(placement_advice(&asked(Policy::Fifo))[0].contains("rtprio"));
    }

    #[test]
    fn the_limits_in_force_are_shown() {
        let limited = Permission {
            rtprio_limit: Some(0),
            memlock_limit_bytes: Some(8 * 1024 * 1024),
            ..Permission::default()
        };
        let [limits, capabilities, root] = permission_advice(&limited);
        assert!(limits.contains("rtprio 0, memlock 8192 KiB"), "{limits}");
        let program = std::env::current_exe().expect("a path");
        assert!(capabilities.contains(program.to_str().expect("text")), "{capabilities}");
        assert!(root.contains("sudo"), "{root}");
        assert!(permission_advice(&Permission::default())[0].contains("rtprio unlimited"));
    }
}
