//! What happens when a page of a mapped file cannot be loaded, since the device fails or the file was cut.
//!
//! Promises: a read gets zeros, and the map notes the page first, so that a reader of the zeros can know; a store, and what is
//! no map's, is handled as it was before (the process ends). Other platforms end the process in each case.
//! It does not know what the pages hold.

use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use super::Map;

/// Maps of files that are listed; those beyond are as on other platforms.
const MAPS_MAX: usize = 1024;

/// A map of a file, and where it lies; no addresses: the place is free, or about to be.
struct Slot {
    map: AtomicPtr<Map>,
    addresses: [AtomicUsize; 2],
}

/// The maps of files of this process.
static MAPS: [Slot; MAPS_MAX] = [const {
    Slot {
        map: AtomicPtr::new(std::ptr::null_mut()),
        addresses: [const { AtomicUsize::new(0) }; 2],
    }
}; MAPS_MAX];

/// Has the pages of a map watched until it is dropped.
pub(super) fn register(map: &std::sync::Arc<Map>) {
    #[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
    handler::install();
    let own = std::sync::Arc::as_ptr(map).cast_mut();
    for slot in &MAPS {
        let free = std::ptr::null_mut();
        let taken = (slot.map).compare_exchange(free, own, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            let base = map.base.as_ptr() as usize;
            slot.addresses[1].store(base + map.capacity as usize, Ordering::Release);
            slot.addresses[0].store(base, Ordering::Release);
            return;
        }
    }
}

/// The map is about to go.
pub(super) fn forget(map: *const Map) {
    for slot in &MAPS {
        if std::ptr::eq(slot.map.load(Ordering::Acquire), map) {
            slot.addresses[1].store(0, Ordering::Release);
            slot.addresses[0].store(0, Ordering::Release);
            slot.map.store(std::ptr::null_mut(), Ordering::Release);
            return;
        }
    }
}

#[cfg(all(target_os = "linux", target_arch = "x86_64", not(miri)))]
mod handler {
    use std::sync::OnceLock;
    use std::sync::atomic::Ordering;

    use super::MAPS;

    /// What was done about the signal before.
    static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

    /// The bit of a page fault's code that marks a store.
    const STORE: i64 = 2;

    pub(super) fn install() {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the structures are plain data that the calls fill in or read; the handler keeps to what a
            // handler may do: atomics and one system call.
            unsafe {
                let mut before: libc::sigaction = std::mem::zeroed();
                if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) != 0 {
                    return;
                }
                let _ = BEFORE.set(before);
                let mut own: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
                own.sa_sigaction = handler as usize;
                own.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigaction(libc::SIGBUS, &raw const own, std::ptr::null_mut());
            }
        });
    }

    extern "C" fn on_fault(_: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        // SAFETY: the system hands both over for the time of the call.
        let (address, code) = unsafe {
            let context = &*context.cast::<libc::ucontext_t>();
            let code = context.uc_mcontext.gregs[libc::REG_ERR as usize];
            ((*info).si_addr() as usize, code)
        };
        if code & STORE == 0 && put_zeros(address) {
            return;
        }
        // Not ours, or a store: what was done before is done when the access is tried again.
        // SAFETY: as in `install`.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if let Some(known) = BEFORE.get() {
                before = *known;
            }
            libc::sigaction(libc::SIGBUS, &raw const before, std::ptr::null_mut());
        }
    }

    /// Puts a page of zeros that can only be read in the place of the one at `address`, if that is a map's.
    fn put_zeros(address: usize) -> bool {
        for slot in &MAPS {
            let base = slot.addresses[0].load(Ordering::Acquire);
            let end = slot.addresses[1].load(Ordering::Acquire);
            if base == 0 || !(base..end).contains(&address) {
                continue;
            }
            // SAFETY: this thread reads from the map, which therefore lives, and is not forgotten.
            let map = unsafe { &*slot.map.load(Ordering::Acquire) };
            let page = address & !4095;
            // Before the zeros are there, so that every reader of them knows.
            map.unreadable.note((page - base) as u64);
            // SAFETY: the page lies within the map, and holds nothing that could be read.
            let put = unsafe {
                libc::mmap(
                    page as *mut libc::c_void,
                    4096,
                    libc::PROT_READ,
                    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                    -1,
                    0,
                )
            };
            return put != libc::MAP_FAILED;
        }
        false
    }
}
