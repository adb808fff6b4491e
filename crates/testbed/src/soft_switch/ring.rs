//! Where frames come from and go to: packet sockets, one interface each.
//!
//! Frames are received through a ring that the kernel fills (TPACKET_V2: V3 hands over blocks, which costs up to a
//! millisecond) and sent by `sendmmsg` on a second socket, past the interface's queueing discipline: the switch is the
//! queue. A frame comes out of the ring as the wire had it; a tag that the kernel took out is put back.
//!
//! Not here: what a frame says, and when it is due.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use headwater_units::{Bytes, Duration};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::buffer::{FramePool, MAX_FRAME, RawBuffer};
use super::sys::{self, Arrived, Geometry, Ring, Stamp};

/// Most frames of one [`FramePort::receive`], so that one busy port does not keep the others waiting.
pub const PORT_BATCH: usize = 64;
/// A block of a ring: small enough for the kernel to find in one piece, and a multiple of any page size.
const BLOCK: usize = 1 << 16;
/// Slots of a ring are at most these many: 0.6 GB of jumbo frames.
const MAX_SLOTS: u32 = 1 << 16;
/// The protocol of tags (IEEE 802.1Q), where the kernel says that there was one but not which.
const TYPE_TAG: u16 = 0x8100;

/// Nobody waits longer for a frame that is there; what claims it has a stamp that is no arrival.
const LONGEST_WAIT: Duration = Duration::from_secs(10);

/// A place where frames come in and go out, in batches; one end of a cable.
pub trait FramePort {
    /// Appends what has arrived to `out`, at most [`PORT_BATCH`] frames, and returns how many; does not wait.
    ///
    /// # Errors
    /// The port's error, if it can receive no more.
    fn receive(&mut self, pool: &FramePool, out: &mut Vec<RawBuffer>) -> io::Result<usize>;

    /// Sends frames in their order, without waiting; returns how many, from the first, are done with. The others found no
    /// room: offer them again, or drop them.
    ///
    /// # Errors
    /// The port's error, if it can send none. A frame that is at fault itself is counted and done with.
    fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> io::Result<usize>;
}

/// How much a port takes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingConfig {
    /// Frames that may wait to be received, 1..=65536, rounded up to what fills the last block.
    pub slots: u32,
    /// The longest frame in bytes, from the destination's MAC address on and without a tag, at most [`MAX_FRAME`].
    pub max_frame: usize,
}

impl Default for RingConfig {
    /// 2048 frames of 1500 bytes of IP: 20 ms at 100,000 packets/s, in 3.2 MiB. That is what a busy machine may stall for.
    fn default() -> Self {
        RingConfig { slots: 2048, max_frame: 1518 }
    }
}

impl RingConfig {
    /// As many slots for frames of `max_frame` bytes as fit into `memory`, at least one and no more than are usual.
    pub fn within(max_frame: usize, memory: Bytes) -> Self {
        let usual = RingConfig::default().slots;
        let slots = (memory.get() / Self::slot(max_frame) as u64).clamp(1, usual.into());
        RingConfig { slots: slots as u32, max_frame }
    }

    /// Bytes of one slot.
    fn slot(max_frame: usize) -> usize {
        (Geometry::BEFORE_FRAME + max_frame).next_multiple_of(16)
    }

    fn geometry(self) -> io::Result<Geometry> {
        let RingConfig { slots, max_frame } = self;
        if !(1..=MAX_SLOTS).contains(&slots) || max_frame > MAX_FRAME {
            let what = format!("{slots} slots for frames of {max_frame} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let slot = Self::slot(max_frame);
        let blocks = slots.div_ceil((BLOCK / slot) as u32);
        Ok(Geometry { slot: slot as u32, block: BLOCK as u32, blocks })
    }
}

/// Counters of a port since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingStats {
    /// Frames received.
    pub received: u64,
    /// Frames that the kernel took to send.
    pub sent: u64,
    /// Frames that arrived when no slot was free; as of the last [`PacketPort::stats`].
    pub kernel_drops: u64,
    /// Arrivals longer than a slot or [`MAX_FRAME`], dropped: super-packets of a sender with segmentation offload.
    pub too_long: u64,
    /// Arrivals whose sender left the checksum to hardware, dropped: see [`offloads_off`](super::offloads_off).
    pub without_checksum: u64,
    /// Frames that the kernel would not send: longer than the interface's MTU allows, or no frames at all.
    pub refused: u64,
    /// How often the kernel had no room to send.
    pub blocked: u64,
}

/// One interface, by packet sockets. Belongs to the namespace that it was opened in, whichever thread uses it.
pub struct PacketPort {
    ring: Ring,
    receiver: OwnedFd,
    sender: OwnedFd,
    stats: RingStats,
    /// When the first frame of the last batch came, by the kernel's calendar.
    oldest: Option<Stamp>,
}

impl PacketPort {
    /// Opens an interface of the calling thread's namespace; see [`in_namespace`](super::in_namespace).
    ///
    /// The machine's own network stack still sees its frames: give it no address there. Frames that the machine itself
    /// sends by the interface are not received.
    ///
    /// # Errors
    /// No such interface, no right to open it (`CAP_NET_RAW`), no memory for the ring, or a configuration out of range.
    pub fn open(interface: &str, config: RingConfig) -> io::Result<PacketPort> {
        let geometry = config.geometry()?;
        let opened = || {
            let receiver = sys::packet_socket()?;
            let sender = sys::packet_socket()?;
            let index = rustix::net::netdevice::name_to_index(&receiver, interface)?;

            // Kernels before 4.20 lack it; frames that leave are recognised one by one then.
            let _ = sys::set_option(receiver.as_fd(), libc::PACKET_IGNORE_OUTGOING, 1);
            let ring = Ring::map(receiver.as_fd(), geometry)?;
            sys::hear_everything(receiver.as_fd(), index)?;
            // Last of all: from here on frames come in.
            sys::bind(receiver.as_fd(), index, libc::ETH_P_ALL as u16)?;

            // Without it frames take a little longer, and nothing else.
            let _ = sys::set_option(sender.as_fd(), libc::PACKET_QDISC_BYPASS, 1);
            sys::bind(sender.as_fd(), index, 0)?;
            Ok(PacketPort { ring, receiver, sender, stats: RingStats::default(), oldest: None })
        };
        opened().map_err(|error: io::Error| {
            io::Error::new(error.kind(), format!("packet socket on {interface}: {error}"))
        })
    }

    /// Counters so far.
    ///
    /// # Errors
    /// The kernel's, when it is asked for its drops; none is expected.
    pub fn stats(&mut self) -> io::Result<RingStats> {
        // Reading sets the kernel's counter to zero.
        self.stats.kernel_drops += u64::from(sys::new_drops(self.receiver.as_fd())?);
        Ok(self.stats)
    }

    /// Counters since the last call of [`PacketPort::stats`]: drops as of then, and packets received and sent until
    /// now.
    pub(super) fn last_stats(&self) -> RingStats {
        self.stats
    }

    /// How long the first frame of the last batch has been here by now; none if that batch was empty, or if the calendar
    /// was set meanwhile.
    pub(super) fn oldest_wait(&self) -> Option<Duration> {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let (seconds, nanos) = self.oldest?;
        let waited =
            (now.tv_sec - i64::from(seconds)) * 1_000_000_000 + now.tv_nsec as i64 - i64::from(nanos);
        let waited = Duration::from_nanos(u64::try_from(waited).ok()?);
        (waited < LONGEST_WAIT).then_some(waited)
    }
}

impl FramePort for PacketPort {
    /// A ring never fails: of an interface that went down or away nothing more arrives, and [`wait`] and
    /// [`FramePort::send`] say so.
    fn receive(&mut self, pool: &FramePool, out: &mut Vec<RawBuffer>) -> io::Result<usize> {
        let mut count = 0;
        self.oldest = None;
        while count < PORT_BATCH {
            match self.ring.take(|frame| (frame.stamp, copy(frame, pool))) {
                None => break,
                Some((stamp, Ok(buffer))) => {
                    out.push(buffer);
                    count += 1;
                    self.oldest.get_or_insert(stamp);
                }
                Some((_, Err(Unfit::Outgoing))) => {}
                Some((_, Err(Unfit::TooLong))) => self.stats.too_long += 1,
                Some((_, Err(Unfit::WithoutChecksum))) => self.stats.without_checksum += 1,
            }
        }
        self.stats.received += count as u64;
        Ok(count)
    }

    fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> io::Result<usize> {
        let mut done = 0;
        while done < frames.len() {
            let left = frames[done..].iter().map(AsRef::as_ref);
            match sys::send_many(self.sender.as_fd(), left) {
                Ok(sent) => {
                    done += sent;
                    self.stats.sent += sent as u64;
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EMSGSIZE | libc::EINVAL) => {
                        done += 1;
                        self.stats.refused += 1;
                    }
                    Some(libc::EAGAIN | libc::ENOBUFS) => {
                        self.stats.blocked += 1;
                        break;
                    }
                    // The frames that were sent count; the same error meets the next call.
                    _ if done > 0 => break,
                    _ => return Err(error),
                },
            }
        }
        Ok(done)
    }
}

impl AsFd for PacketPort {
    /// The socket that receives; readable while frames wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}

/// Sleeps until a port has frames (true), or `timeout` is over or a signal came (false); `None` is for ever.
///
/// # Errors
/// Of the first port that has one, which is forgotten by that: `ENETDOWN` of an interface that was taken down or away. The
/// port works again when its interface is up again.
pub fn wait<'a>(
    ports: impl IntoIterator<Item = &'a PacketPort>,
    timeout: Option<Duration>,
) -> io::Result<bool> {
    let mut polled: Vec<PollFd<'a>> =
        ports.into_iter().map(|port| PollFd::new(&port.receiver, PollFlags::IN)).collect();
    let timeout = timeout.map(|it| Timespec {
        tv_sec: (it.as_nanos() / 1_000_000_000).cast_signed(),
        tv_nsec: (it.as_nanos() % 1_000_000_000) as _,
    });
    match poll(&mut polled, timeout.as_ref()) {
        Err(rustix::io::Errno::INTR) => return Ok(false),
        result => result?,
    };
    for port in &polled {
        if port.revents().contains(PollFlags::ERR) {
            rustix::net::sockopt::socket_error(port.as_fd())??;
        }
    }
    Ok(polled.iter().any(|port| port.revents().contains(PollFlags::IN)))
}

/// Why an arrival is not handed on.
enum Unfit {
    Outgoing,
    TooLong,
    WithoutChecksum,
}

fn copy(frame: Arrived<'_>, pool: &FramePool) -> Result<RawBuffer, Unfit> {
    if frame.outgoing {
        return Err(Unfit::Outgoing);
    }
    if frame.len > frame.bytes.len() {
        return Err(Unfit::TooLong);
    }
    if frame.status & libc::TP_STATUS_CSUMNOTREADY != 0 {
        return Err(Unfit::WithoutChecksum);
    }
    // Behind the two addresses.
    let (addresses, rest) = frame.bytes.split_at(frame.bytes.len().min(12));
    let (protocol, control) = frame.tag;
    let copied = match frame.status & (libc::TP_STATUS_VLAN_VALID | libc::TP_STATUS_VLAN_TPID_VALID) {
        0 | libc::TP_STATUS_VLAN_TPID_VALID => pool.gather(&[frame.bytes]),
        libc::TP_STATUS_VLAN_VALID => {
            pool.gather(&[addresses, &TYPE_TAG.to_be_bytes(), &control.to_be_bytes(), rest])
        }
        _ => pool.gather(&[addresses, &protocol.to_be_bytes(), &control.to_be_bytes(), rest]),
    };
    copied.ok_or(Unfit::TooLong)
}
