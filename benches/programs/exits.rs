//! The smallest program: exits with 0, or waits for a signal when it is given an argument.
//!
//! It has no C library and no start-up of its own, so that nothing hides the price of a spawn.
//! `benches/spawn.rs` compiles it.

#![no_std]
#![no_main]

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "cmp qword ptr [rsp], 1", // argc
    "jg 2f",
    "mov eax, 60", // exit
    "xor edi, edi",
    "syscall",
    "2: mov eax, 34", // pause
    "syscall",
    "jmp 2b",
);

#[cfg(target_arch = "aarch64")]
core::arch::global_asm!(
    ".globl _start",
    "_start:",
    "ldr x1, [sp]", // argc
    "cmp x1, 1",
    "b.gt 2f",
    "mov x8, 93", // exit
    "mov x0, 0",
    "svc 0",
    "2: mov x0, 0",
    "mov x1, 0",
    "mov x2, 0",
    "mov x3, 0",
    "mov x8, 73", // ppoll without descriptors and without a limit
    "svc 0",
    "b 2b",
);

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
