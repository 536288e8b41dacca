#![expect(
    unsafe_code,
    reason = "descriptor passing: received numbers become owned descriptors"
)]
//! Sending and receiving on the control socket, without ever blocking.
//!
//! `nix`'s `recvmsg` gives no access to the descriptors of a truncated control message, so
//! they would stay open for ever; this file reads them itself.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use crate::frame::{Inbox, Outbox};
use crate::version::MAX_DESCRIPTORS;

/// How much one read takes at most.
const READ: usize = 16 * 1024;

/// A control buffer with room for the most descriptors that one message carries: a header of
/// 16 bytes and 253 numbers of 4 bytes, in units that give it the alignment of `cmsghdr`.
const CONTROL_WORDS: usize = (16 + MAX_DESCRIPTORS * 4).div_ceil(8);

/// The control message of `SO_PASSPIDFD` (Linux 6.5); the value is the kernel's ABI.
const SCM_PIDFD: libc::c_int = 0x04;

/// What one read brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes, now in the inbox.
    Bytes(usize),
    /// The other end is closed, and everything that it sent has been read.
    Closed,
}

/// Reads once into the inbox, without blocking (`recvmsg(2)`). Descriptors arrive
/// close-on-exec.
///
/// # Errors
///
/// `WouldBlock` where nothing is there; otherwise what the kernel says. `EINTR` is retried,
/// and `ECONNRESET` (the peer closed without reading everything) is [`Received::Closed`].
pub fn receive(socket: BorrowedFd<'_>, inbox: &mut Inbox) -> io::Result<Received> {
    let mut control = [0_u64; CONTROL_WORDS];
    let room = inbox.room(READ);
    let mut slice = libc::iovec {
        iov_base: room.as_mut_ptr().cast(),
        iov_len: room.len(),
    };
    // SAFETY: msghdr is a plain C struct for which all-zero bytes are a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = c_length(mem::size_of_val(&control))?;
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    let count = loop {
        // SAFETY: message points to `room` and `control`, both exclusively borrowed until
        // after the call, with their lengths.
        let count = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINTR) => continue,
                // Queued bytes come first: this is a peer that closed without reading all.
                Some(libc::ECONNRESET) => return Ok(Received::Closed),
                Some(_) | None => return Err(error),
            }
        };
        break count;
    };
    let descriptors = take_descriptors(&message);
    let lost = message.msg_flags & libc::MSG_CTRUNC != 0;
    if count == 0 {
        return Ok(Received::Closed);
    }
    inbox.filled(count, descriptors, lost);
    Ok(Received::Bytes(count))
}

/// Sends from the outbox until it is empty or the socket is full, without blocking
/// (`sendmsg(2)`); a closed peer is an error and no signal. True where everything went.
///
/// # Errors
///
/// What the kernel says: `EPIPE` where the peer is closed; `ETOOMANYREFS` where too many
/// descriptors of this user are on their way (`unix(7)`), which passes when a peer reads and
/// loses nothing of the outbox. `EINTR` is retried.
pub fn send(socket: BorrowedFd<'_>, outbox: &mut Outbox) -> io::Result<bool> {
    loop {
        let Some((bytes, descriptors)) = outbox.front() else {
            return Ok(true);
        };
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        match send_once(socket, bytes, &numbers) {
            Ok(count) => outbox.advance(count),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                Some(libc::EAGAIN) => return Ok(false),
                // A peer that closed without reading all is as closed as any other.
                Some(libc::ECONNRESET) => return Err(io::Error::from_raw_os_error(libc::EPIPE)),
                Some(_) | None => return Err(error),
            },
        }
    }
}

/// A length in the C library's type for it, which is not the same one everywhere.
fn c_length<T: TryFrom<usize>>(length: usize) -> io::Result<T> {
    T::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
}

/// The opposite of [`c_length`]; a length that does not fit is no length.
fn rust_length<T: TryInto<usize>>(length: T) -> usize {
    length.try_into().unwrap_or(0)
}

fn send_once(socket: BorrowedFd<'_>, bytes: &[u8], numbers: &[RawFd]) -> io::Result<usize> {
    let mut control = [0_u64; CONTROL_WORDS];
    let mut slice = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: msghdr is a plain C struct for which all-zero bytes are a valid value.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &raw mut slice;
    message.msg_iovlen = 1;
    if !numbers.is_empty() {
        let length = u32::try_from(mem::size_of_val(numbers)).map_err(io::Error::other)?;
        message.msg_control = control.as_mut_ptr().cast();
        // SAFETY: CMSG_SPACE only computes.
        let space = unsafe { libc::CMSG_SPACE(length) } as usize;
        if space > mem::size_of_val(&control) {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        }
        message.msg_controllen = c_length(space)?;
        // SAFETY: msg_control and msg_controllen describe `control`, which is aligned and large
        // enough for one header, so the result points into it.
        let header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        // SAFETY: CMSG_LEN only computes.
        let header_length = unsafe { libc::CMSG_LEN(length) } as usize;
        // SAFETY: cmsghdr is a plain C struct for which all-zero bytes are a valid value.
        let mut value: libc::cmsghdr = unsafe { mem::zeroed() };
        value.cmsg_len = c_length(header_length)?;
        value.cmsg_level = libc::SOL_SOCKET;
        value.cmsg_type = libc::SCM_RIGHTS;
        // SAFETY: header points at the start of `control`, aligned and in bounds.
        unsafe { header.write(value) };
        // SAFETY: the header was written above and the data behind it is inside `control`.
        let data = unsafe { libc::CMSG_DATA(header) };
        // SAFETY: `length` bytes behind `data` are inside `control` by the check of
        // CMSG_SPACE, and `numbers` is `length` bytes long.
        unsafe { data.copy_from_nonoverlapping(numbers.as_ptr().cast(), length as usize) };
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: message points to buffers above that outlive the call, with their lengths; the
    // kernel does not write to msg_iov when sending.
    let count = unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, flags) };
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

/// Takes ownership of every passed descriptor in the control messages, also of truncated
/// ones. A sender's pidfd, which the kernel adds where the socket's maker asked for it, is
/// closed.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has set msg_controllen to what it wrote into the buffer.
    let mut header = unsafe { libc::CMSG_FIRSTHDR(message) };
    while !header.is_null() {
        // SAFETY: a header that CMSG_FIRSTHDR or CMSG_NXTHDR gives is whole and in bounds.
        let value = unsafe { header.read() };
        match (value.cmsg_level, value.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                // SAFETY: the header is whole and in bounds, as above, and is met once.
                unsafe { take_numbers(header, &mut descriptors) };
            }
            (libc::SOL_SOCKET, SCM_PIDFD) => {
                // SAFETY: as above.
                unsafe { take_numbers(header, &mut Vec::new()) };
            }
            // Credentials, a security label or a time: they hold no descriptor.
            (_, _) => {}
        }
        // SAFETY: message and header are those of this control buffer.
        header = unsafe { libc::CMSG_NXTHDR(message, header) };
    }
    descriptors
}

/// Takes ownership of the descriptors of one control message.
///
/// # Safety
///
/// `header` is a control message that the kernel wrote, whole and in bounds of its buffer,
/// whose descriptors nobody has taken yet.
unsafe fn take_numbers(header: *const libc::cmsghdr, descriptors: &mut Vec<OwnedFd>) {
    // SAFETY: the caller passes a header that is whole and in bounds of its buffer.
    let value = unsafe { header.read() };
    // SAFETY: CMSG_LEN only computes.
    let empty = unsafe { libc::CMSG_LEN(0) } as usize;
    let count = rust_length(value.cmsg_len).saturating_sub(empty) / mem::size_of::<RawFd>();
    // SAFETY: the header is whole, so its data begins in bounds.
    let data = unsafe { libc::CMSG_DATA(header) }.cast::<RawFd>();
    for index in 0..count {
        // SAFETY: index is below the count that cmsg_len gives, so it is in bounds.
        let place = unsafe { data.add(index) };
        // SAFETY: the kernel wrote a number there; the data need not be aligned.
        let number = unsafe { place.read_unaligned() };
        // A pidfd that could not be made is reported by its error number, negated.
        if number < 0 {
            continue;
        }
        // SAFETY: the kernel installed this descriptor for this message and nobody else knows
        // of it.
        descriptors.push(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
