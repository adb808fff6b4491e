//! The system calls of packet sockets, each behind a safe function; all `unsafe` of the software switch is here.
//!
//! Slices and borrowed descriptors go in, counts and `io::Error`s come out. The meaning of frames and features is left
//! to safe code elsewhere.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::atomic::{AtomicU32, Ordering};

/// Most frames of one `sendmmsg`; bounds the headers built on the stack (5 KiB).
pub(super) const CHUNK: usize = 64;
/// Where the address stands in a slot of a ring: behind the header, aligned (packet_mmap.rst, "TPACKET_V2").
const ADDRESS: usize = mem::size_of::<libc::tpacket2_hdr>().next_multiple_of(libc::TPACKET_ALIGNMENT);

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A packet socket for whole Ethernet frames, non-blocking and bound to nothing: it receives no frame.
pub(super) fn packet_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes three numbers, touches no memory.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new and open, and nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Binds a packet socket to one interface; it receives frames of this protocol (`ETH_P_...`), none if zero.
pub(super) fn bind(socket: BorrowedFd<'_>, interface: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: a plain C struct of integers; all zeroes is a valid value.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = interface.cast_signed();
    let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel reads exactly the struct whose address and size are given and keeps neither.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) }).map(drop)
}

/// Sets a packet socket's option of type int.
pub(super) fn set_option(socket: BorrowedFd<'_>, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set(socket, name, &value)
}

/// Has the interface take in frames for any address for as long as the socket is open.
pub(super) fn hear_everything(socket: BorrowedFd<'_>, interface: u32) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface.cast_signed(),
        mr_type: libc::PACKET_MR_PROMISC as u16,
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(socket, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// `T` is one of the C types of integers above and below, without padding.
fn set<T: Copy>(socket: BorrowedFd<'_>, name: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the descriptor is open for as long as it is borrowed; the kernel reads at most the `len` bytes that `value`
    // has, all of them initialised, and keeps no pointer.
    check(unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_PACKET, name, ptr::from_ref(value).cast(), len)
    })
    .map(drop)
}

/// How many frames the kernel dropped for want of a free slot since it was last asked.
pub(super) fn new_drops(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut stats = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
    let mut len = size_of::<libc::tpacket_stats>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes, the size of `stats`, and any bytes are valid integers.
    check(unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_PACKET,
            libc::PACKET_STATISTICS,
            (&raw mut stats).cast(),
            &raw mut len,
        )
    })?;
    Ok(stats.tp_drops)
}

/// Sends the first [`CHUNK`] of `frames` without waiting; returns how many of them, from the first, the kernel took.
///
/// # Errors
/// Whatever the first frame met; errors of later ones show on the next call.
pub(super) fn send_many<'a>(
    socket: BorrowedFd<'_>,
    frames: impl Iterator<Item = &'a [u8]>,
) -> io::Result<usize> {
    // SAFETY: both are plain C structs of integers and pointers, for which all zeroes (null, empty) is a valid value.
    let (mut headers, mut vectors): ([libc::mmsghdr; CHUNK], [libc::iovec; CHUNK]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for ((frame, header), vector) in frames.zip(&mut headers).zip(&mut vectors) {
        vector.iov_base = frame.as_ptr().cast_mut().cast();
        vector.iov_len = frame.len();
        header.msg_hdr.msg_iov = vector;
        header.msg_hdr.msg_iovlen = 1;
        count += 1;
    }
    // SAFETY: `count` headers are filled in; each points to a vector of this stack frame, and that to bytes that live for
    // `'a`, with their true lengths. The kernel only reads through these pointers (the cast to `*mut` is what the C type
    // wants) and writes only `msg_len` of the headers.
    let sent = check(unsafe {
        libc::sendmmsg(
            socket.as_raw_fd(),
            headers.as_mut_ptr(),
            count as libc::c_uint,
            (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as _,
        )
    })?;
    Ok(sent as usize)
}

/// How a ring is cut up. No slot lies across two blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Geometry {
    /// Bytes of one slot, a multiple of 16: headers and a frame.
    pub(super) slot: u32,
    /// Bytes of one block, a multiple of the page size.
    pub(super) block: u32,
    pub(super) blocks: u32,
}

impl Geometry {
    /// Bytes of a slot before a frame's first one: header and address, padded so that the IP header is aligned.
    pub(super) const BEFORE_FRAME: usize =
        (libc::TPACKET2_HDRLEN + 16).next_multiple_of(libc::TPACKET_ALIGNMENT) - 14;

    fn slots_of_block(&self) -> u32 {
        self.block / self.slot
    }
}

/// Seconds and nanoseconds of the machine's calendar.
pub(super) type Stamp = (u32, u32);

/// A frame that the kernel has put into one slot.
pub(super) struct Arrived<'a> {
    /// The frame as far as it fits into the slot, without the tag that it came with.
    pub(super) bytes: &'a [u8],
    /// How long it is, in bytes.
    pub(super) len: usize,
    /// `TP_STATUS_...`
    pub(super) status: u32,
    /// Protocol and control information of the tag.
    pub(super) tag: (u16, u16),
    /// This machine sent it by the interface.
    pub(super) outgoing: bool,
    /// When it came.
    pub(super) stamp: Stamp,
}

/// The receive ring of a packet socket, mapped. Slots are read in order.
pub(super) struct Ring {
    memory: NonNull<u8>,
    len: usize,
    geometry: Geometry,
    next: usize,
}

// SAFETY: the mapping belongs to the process and not to a thread, and only this value has its address.
unsafe impl Send for Ring {}

impl Ring {
    /// Gives the socket a ring (TPACKET_V2) and maps it. Do so before it is bound.
    pub(super) fn map(socket: BorrowedFd<'_>, geometry: Geometry) -> io::Result<Ring> {
        assert!(
            geometry.slot as usize >= libc::TPACKET2_HDRLEN
                && (geometry.slot as usize).is_multiple_of(libc::TPACKET_ALIGNMENT)
                && geometry.slot <= geometry.block,
            "a slot holds its header, is aligned, and fits its block: {geometry:?}"
        );
        set_option(socket, libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
        let request = libc::tpacket_req {
            tp_block_size: geometry.block,
            tp_block_nr: geometry.blocks,
            tp_frame_size: geometry.slot,
            tp_frame_nr: geometry.blocks * geometry.slots_of_block(),
        };
        set(socket, libc::PACKET_RX_RING, &request)?;
        let len = geometry.block as usize * geometry.blocks as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let memory = unsafe {
            libc::mmap(
                ptr::null_mut(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if memory == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let memory = NonNull::new(memory.cast()).expect("a mapping is not at address zero");
        Ok(Ring { memory, len, geometry, next: 0 })
    }

    /// Lets `read` see the next frame that has arrived, then gives its slot back; none if nothing has arrived.
    pub(super) fn take<R>(&mut self, read: impl FnOnce(Arrived<'_>) -> R) -> Option<R> {
        let Geometry { slot: slot_len, block, blocks } = self.geometry;
        let (slot_len, of_block) = (slot_len as usize, self.geometry.slots_of_block() as usize);
        let offset = self.next / of_block * block as usize + self.next % of_block * slot_len;
        // SAFETY: `next` is below the number of slots, so the whole slot lies within the mapping, which lives as long as
        // `self`.
        let slot = unsafe { self.memory.add(offset) };
        // SAFETY: a slot is aligned to 16 bytes (page-aligned blocks, slots of a multiple of 16) and begins with
        // `tp_status`; the kernel and this thread access it concurrently, both as one aligned word.
        let owner = unsafe { AtomicU32::from_ptr(slot.as_ptr().cast()) };
        // Acquire: what the kernel wrote before it handed the slot over is visible after this.
        let status = owner.load(Ordering::Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        // SAFETY: the slot is ours until the status is set to zero below, so the kernel writes nothing there; header and
        // address lie within it (asserted in `map`), aligned to 16, and any bytes are valid integers.
        let (header, address) = unsafe {
            (slot.cast::<libc::tpacket2_hdr>().read(), slot.add(ADDRESS).cast::<libc::sockaddr_ll>().read())
        };
        let start = usize::from(header.tp_mac).min(slot_len);
        let here = (header.tp_snaplen as usize).min(slot_len - start);
        // SAFETY: `start + here` is at most the slot's length, so the bytes lie within the mapping; they are initialised
        // (the kernel zeroes a new ring) and nobody writes them while the slot is ours, which outlasts this borrow:
        // `Arrived` cannot leave `read`.
        let bytes = unsafe { slice::from_raw_parts(slot.add(start).as_ptr(), here) };
        let result = read(Arrived {
            bytes,
            len: header.tp_len as usize,
            status,
            tag: (header.tp_vlan_tpid, header.tp_vlan_tci),
            outgoing: address.sll_pkttype == libc::PACKET_OUTGOING,
            stamp: (header.tp_sec, header.tp_nsec),
        });
        // Release: the kernel may write the slot only after all reads above.
        owner.store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.next = (self.next + 1) % (of_block * blocks as usize);
        Some(result)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `map` mapped; no borrow of it outlives `self`.
        unsafe { libc::munmap(self.memory.as_ptr().cast::<c_void>(), self.len) };
    }
}

/// One word of the masks of an interface's features; feature n is bit n % 32 of word n / 32.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct FeatureWord {
    /// Can be changed.
    pub(super) available: u32,
    /// Is on.
    pub(super) active: u32,
}

/// The names of all features that this kernel knows, by their numbers, each padded with zeroes.
pub(super) fn feature_names(
    socket: BorrowedFd<'_>,
    interface: &str,
) -> io::Result<Vec<[u8; ETH_GSTRING_LEN]>> {
    let mask = (1_u64 << ETH_SS_FEATURES).to_ne_bytes();
    let half = |at: usize| u32::from_ne_bytes([mask[at], mask[at + 1], mask[at + 2], mask[at + 3]]);
    // struct ethtool_sset_info: cmd, reserved, a mask of 64 bits, and a count for the one set that the mask names.
    let mut info = [ETHTOOL_GSSET_INFO, 0, half(0), half(4), 0];
    // SAFETY: the command reads four words and writes one count more per bit of the mask: five words, which `info` has.
    unsafe { ethtool(socket, interface, &mut info)? };
    let count = info[4] as usize;

    // struct ethtool_gstrings: cmd, set, count, names.
    let mut strings = vec![0; 3 + count * (ETH_GSTRING_LEN / 4)];
    strings[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
    // SAFETY: the command writes three words and all names of the set; their count is a constant of the running kernel, and
    // the space is for what it has just said.
    unsafe { ethtool(socket, interface, &mut strings)? };
    let bytes: Vec<u8> = strings[3..].iter().flat_map(|word| word.to_ne_bytes()).collect();
    Ok(bytes
        .chunks_exact(ETH_GSTRING_LEN)
        .map(|name| name.try_into().expect("a chunk of that size"))
        .collect())
}

/// Features among the first `count` that can be changed, and those that are on.
pub(super) fn features(
    socket: BorrowedFd<'_>,
    interface: &str,
    count: usize,
) -> io::Result<Vec<FeatureWord>> {
    // struct ethtool_gfeatures: cmd, size, and per word available, requested, active, never changed.
    let size = count.div_ceil(32);
    let mut words = vec![0; 2 + size * 4];
    words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, size as u32]);
    // SAFETY: the command writes two words and at most `size` blocks of four, which `words` has.
    unsafe { ethtool(socket, interface, &mut words)? };
    Ok(words[2..].chunks_exact(4).map(|it| FeatureWord { available: it[0], active: it[2] }).collect())
}

/// Turns off the features whose bits are set. The kernel may leave some on: see [`features`].
pub(super) fn features_off(socket: BorrowedFd<'_>, interface: &str, masks: &[u32]) -> io::Result<()> {
    // struct ethtool_sfeatures: cmd, size, and per word which bits are meant, and what they become.
    let head = [ETHTOOL_SFEATURES, masks.len() as u32];
    let mut words: Vec<u32> = head.into_iter().chain(masks.iter().flat_map(|mask| [*mask, 0])).collect();
    // SAFETY: the command reads two words and as many blocks of two as the second says, and writes nothing.
    unsafe { ethtool(socket, interface, &mut words) }
}

// linux/ethtool.h; the libc crate lacks them.
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_LEN: usize = 32;

/// # Safety
/// `words` holds the command's struct, with room for all that the kernel writes for it.
unsafe fn ethtool(socket: BorrowedFd<'_>, interface: &str, words: &mut [u32]) -> io::Result<()> {
    // SAFETY: a plain C struct with a union of integers and pointers; all zeroes is a valid value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays zero.
    if interface.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
    // SAFETY: `request` is a valid ifreq whose name ends with a zero; its pointer has the room that the caller promises,
    // and the kernel keeps neither.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) }).map(drop)
}
