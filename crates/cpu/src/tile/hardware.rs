//! The processor's tile unit by its instructions (AMX): the intrinsics are not stable.

use super::Unit;
use std::arch::asm;
use std::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};
use std::marker::PhantomData;

/// The system call by which a process asks for a feature's state, and that of tile data.
const ARCH_REQ_XCOMP_PERM: usize = 0x1023;
const TILE_DATA: usize = 18;
/// Bits of the state that the system saves: tile configuration and tile data.
const SAVED: u64 = 0b11 << 17;

/// Whether processor and system let this process multiply bf16 tiles. Asks the system for
/// the state of tiles, once for all threads.
pub(super) fn granted() -> bool {
    saved() && request() == 0
}

/// Whether the processor has bf16 tiles and the system saves them when threads change.
fn saved() -> bool {
    const TILES: u32 = 1 << 24 | 1 << 22;
    const OSXSAVE: u32 = 1 << 27;
    let has = __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & TILES == TILES && __cpuid(1).ecx & OSXSAVE != 0;
    #[target_feature(enable = "xsave")]
    fn states() -> u64 {
        // SAFETY: OSXSAVE says that the instruction may be used.
        unsafe { _xgetbv(0) }
    }
    // SAFETY: as above.
    has && unsafe { states() } & SAVED == SAVED
}

/// 0 when granted.
fn request() -> isize {
    const SYS_ARCH_PRCTL: isize = 158;
    let mut result = SYS_ARCH_PRCTL;
    // SAFETY: the call changes nothing but which features this process may use.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") result,
            in("rdi") ARCH_REQ_XCOMP_PERM,
            in("rsi") TILE_DATA,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// The tiles of the present thread, configured; released when dropped.
pub(crate) struct Hardware {
    /// Tiles belong to a thread.
    thread: PhantomData<*mut ()>,
}

/// What `ldtilecfg` reads: palette 1, and of each tile its bytes a row and its rows.
#[repr(C, align(64))]
struct Configuration {
    palette: u8,
    start_row: u8,
    reserved: [u8; 14],
    row_bytes: [u16; 16],
    rows: [u8; 16],
}

impl Hardware {
    /// Eight tiles of 16 rows of 64 bytes.
    ///
    /// # Safety
    /// [`Tiles::detect`](super::Tiles::detect) found the hardware; one configuration a
    /// thread at a time.
    pub unsafe fn configured() -> Self {
        let first = |i: usize, value: u16| if i < 8 { value } else { 0 };
        let configuration = Configuration {
            palette: 1,
            start_row: 0,
            reserved: [0; 14],
            row_bytes: std::array::from_fn(|i| first(i, 64)),
            rows: std::array::from_fn(|i| first(i, 16) as u8),
        };
        // SAFETY: 64 bytes of a sound configuration, on a processor that has the instruction.
        unsafe {
            asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(readonly, nostack, preserves_flags))
        };
        Self { thread: PhantomData }
    }
}

impl Drop for Hardware {
    fn drop(&mut self) {
        // SAFETY: configured above on this thread.
        unsafe { asm!("tilerelease", options(nomem, nostack, preserves_flags)) };
    }
}

impl Unit for Hardware {
    #[inline(always)]
    fn zero<const C: usize>(&mut self) {
        // SAFETY: configured; the compiler itself uses no tiles.
        unsafe { asm!("tilezero tmm{c}", c = const C, options(nomem, nostack, preserves_flags)) };
    }

    #[inline(always)]
    unsafe fn load<const T: usize>(&mut self, from: *const u16, stride: usize) {
        // SAFETY: the caller's rows.
        unsafe {
            asm!("tileloadd tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from, stride = in(reg) stride,
                options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn stream<const T: usize>(&mut self, from: *const u16, stride: usize) {
        // SAFETY: the caller's rows.
        unsafe {
            asm!("tileloaddt1 tmm{t}, [{from} + {stride}]", t = const T, from = in(reg) from, stride = in(reg) stride,
                options(readonly, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    fn multiply<const C: usize, const A: usize, const B: usize>(&mut self) {
        // SAFETY: configured; the compiler itself uses no tiles.
        unsafe {
            asm!("tdpbf16ps tmm{c}, tmm{a}, tmm{b}", c = const C, a = const A, b = const B,
                options(nomem, nostack, preserves_flags));
        }
    }

    #[inline(always)]
    unsafe fn store<const C: usize>(&mut self, to: *mut f32, stride: usize) {
        // SAFETY: the caller's rows.
        unsafe {
            asm!("tilestored [{to} + {stride}], tmm{c}", c = const C, to = in(reg) to, stride = in(reg) stride,
                options(nostack, preserves_flags));
        }
    }
}
