//! The asymmetric barrier: readers execute none, reclamation makes every thread of the process pass one.
//!
//! `membarrier` is registered once, when the first domain is created; where the system has none, both sides execute a
//! fence. It does not know what is ordered (idea: `membarrier`'s manual page and the seize crate; fenced pins cost 3 to
//! 8 % of the read rate).

#![expect(unsafe_code, reason = "one system call")]

use std::sync::OnceLock;
use std::sync::atomic::{Ordering, fence};

/// Whether the system makes all threads pass a barrier.
static IS_REGISTERED: OnceLock<bool> = OnceLock::new();

/// Registers this process. Whether threads have to execute fences, since the system makes no barrier for them.
pub(super) fn needs_fences() -> bool {
    !IS_REGISTERED.get_or_init(register)
}

/// Asks the system whether it can make all threads pass a barrier.
fn register() -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        const REGISTER_PRIVATE_EXPEDITED: i32 = 1 << 4;
        // SAFETY: the call takes three integers and touches no memory of ours.
        unsafe { libc::syscall(libc::SYS_membarrier, REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 }
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    false
}

/// Makes every thread's stores before this moment visible, and every thread's later loads new. Costs some microseconds.
pub fn heavy_barrier() {
    fence(Ordering::SeqCst);
    #[cfg(all(target_os = "linux", not(miri)))]
    if !needs_fences() {
        const PRIVATE_EXPEDITED: i32 = 1 << 3;
        // SAFETY: the call takes three integers and touches no memory of ours.
        let done = unsafe { libc::syscall(libc::SYS_membarrier, PRIVATE_EXPEDITED, 0, 0) };
        assert_eq!(done, 0, "membarrier was registered and cannot fail");
    }
}
