//! Values of single options: each is read from text, and written back exactly.
//!
//! Flags, environment and config file share these: one way to read each value, one sentence when it is wrong.

#[cfg(feature = "laboratory")]
pub(crate) mod demo;
pub(crate) mod groups;
pub(crate) mod labels;
pub(crate) mod policy;
pub(crate) mod waves;

use std::convert::Infallible;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use headwater_api::wildcard;
use headwater_units::{BitRate, Bytes, Duration, NodeId, ParseIdError, ParseQuantityError};
use headwater_wire::Delivery;
use serde_json::Value;
use thiserror::Error;

use self::groups::Groups;
use self::labels::Labels;

/// A text is not such a value.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub(crate) struct ValueError(String);

impl From<ParseQuantityError> for ValueError {
    fn from(error: ParseQuantityError) -> Self {
        ValueError(error.to_string())
    }
}

impl From<ParseIdError> for ValueError {
    fn from(error: ParseIdError) -> Self {
        ValueError(error.to_string())
    }
}

impl From<Infallible> for ValueError {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

/// On or off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Switch {
    /// It is to be so.
    On,
    /// It is not, or no more.
    Off,
}

pub(super) fn bad<T>(reason: impl Into<String>) -> Result<T, ValueError> {
    Err(ValueError(reason.into()))
}

/// A value that a config file can hold.
pub(crate) trait SettingValue: Sized {
    /// Reads it.
    fn read(text: &str) -> Result<Self, ValueError>;
    /// Writes it so that reading gives the same value: a string, a number or a boolean.
    fn written(&self) -> Value;
}

/// Reading by `FromStr`, writing by an expression.
macro_rules! setting_values {
    ($($type:ty: |$value:ident| $written:expr;)*) => {$(
        impl SettingValue for $type {
            fn read(text: &str) -> Result<Self, ValueError> {
                text.parse::<$type>().map_err(ValueError::from)
            }
            fn written(&self) -> Value {
                let $value = self;
                Value::from($written)
            }
        }
    )*};
}

setting_values! {
    PathBuf: |path| path.to_string_lossy().into_owned();
    NodeId: |id| id.to_string();
    Groups: |groups| groups.to_string();
    NodeName: |name| name.0.as_str();
    HostPort: |address| address.to_string();
    Listen: |address| address.to_string();
    Rate: |rate| exact_rate(rate.0);
    Rack: |rack| rack.to_string();
    Labels: |labels| labels.to_string();
    Duration: |span| exact_duration(*span);
    Dscp: |dscp| dscp.0;
    DscpLevels: |levels| levels.to_string();
    Mtu: |mtu| mtu.0;
    Port: |port| port.0;
    SourceCount: |count| count.0;
    Theta: |theta| theta.to_string();
    Spread: |spread| spread.to_string();
    LossResponse: |response| response.to_string();
    ProgressMode: |mode| mode.to_string();
    LogFormat: |format| format.to_string();
    LogLevel: |level| level.to_string();
}

impl SettingValue for Bytes {
    fn read(text: &str) -> Result<Self, ValueError> {
        size(text)
    }
    fn written(&self) -> Value {
        Value::from(exact_bytes(*self))
    }
}

/// Reads a size that people mean in mega- or gigabytes: a bare number is more likely a forgotten unit than a count of bytes.
/// Offsets and lengths of blocks and packets are counted in bytes, and read as [`Bytes`] are.
pub(crate) fn size(text: &str) -> Result<Bytes, ValueError> {
    let bytes = text.parse::<Bytes>()?;
    let bare = text.trim().bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if bare && bytes != Bytes::ZERO {
        let number = text.trim();
        return bad(format!("'{text}' has no unit: add one, as in {number}MiB, {number}GB or {number}B"));
    }
    Ok(bytes)
}

impl SettingValue for bool {
    fn read(text: &str) -> Result<Self, ValueError> {
        truth(text)
    }
    fn written(&self) -> Value {
        Value::from(*self)
    }
}

/// Reads `true`, `yes`, `on`, `1` and their opposites.
pub(crate) fn truth(text: &str) -> Result<bool, ValueError> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Ok(true),
        "false" | "no" | "off" | "0" => Ok(false),
        _ => bad(format!("'{text}' is neither true nor false")),
    }
}

/// The shortest text that reads back as this rate.
pub(crate) fn exact_rate(rate: BitRate) -> String {
    let n = rate.get();
    let units = [(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")];
    exact(n, &units)
}

fn exact_bytes(bytes: Bytes) -> String {
    exact(bytes.get(), &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")])
}

fn exact_duration(span: Duration) -> String {
    exact(span.as_nanos(), &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
}

/// `n` in the largest unit that it is a multiple of; the last unit is 1.
fn exact(n: u64, units: &[(u64, &str)]) -> String {
    let fits = units.iter().find(|(size, _)| n != 0 && n.is_multiple_of(*size)).or(units.last());
    fits.map(|(size, unit)| format!("{}{unit}", n / size)).unwrap_or_default()
}

/// The address of another machine: a name or IP address, and a port unless it is the usual one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPort {
    host: String,
    port: Option<u16>,
}

impl HostPort {
    /// `host:port`, with this port where none was given.
    pub(crate) fn with_port(&self, usual: u16) -> String {
        HostPort { host: self.host.clone(), port: self.port.or(Some(usual)) }.to_string()
    }
}

impl FromStr for HostPort {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let wrong = || {
            ValueError(format!("'{text}' is not an address: HOST, HOST:PORT, IPv6 or [IPv6]:PORT expected"))
        };
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').ok_or_else(wrong)?;
            let (ip, _scope) = host.split_once('%').unwrap_or((host, ""));
            ip.parse::<Ipv6Addr>().map_err(|_| wrong())?;
            match rest.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if rest.is_empty() => (host, None),
                None => return Err(wrong()),
            }
        } else if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else {
            let (host, port) = text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port)));
            let plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
            if host.is_empty() || !host.chars().all(plain) {
                return Err(wrong());
            }
            (host, port)
        };
        let port =
            port.map(|port| port.parse::<u16>().ok().filter(|&p| p != 0).ok_or_else(wrong)).transpose()?;
        Ok(HostPort { host: host.to_owned(), port })
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.host.contains(':'), self.port) {
            (true, Some(port)) => write!(f, "[{}]:{port}", self.host),
            (false, Some(port)) => write!(f, "{}:{port}", self.host),
            (_, None) => f.write_str(&self.host),
        }
    }
}

/// An address of this machine; what is left out is "every address" and "the usual port".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Listen {
    ip: Option<IpAddr>,
    port: Option<u16>,
}

impl Listen {
    /// The address to bind, with this port where none was given.
    pub(crate) fn at(self, usual: u16) -> SocketAddr {
        let port = self.port.unwrap_or(usual);
        self.ip.map_or_else(|| wildcard(port), |ip| SocketAddr::new(ip, port))
    }
}

impl FromStr for Listen {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(Listen { ip: Some(address.ip()), port: Some(address.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
        if let Ok(ip) = bare.parse::<IpAddr>() {
            return Ok(Listen { ip: Some(ip), port: None });
        }
        match text.strip_prefix(':').unwrap_or(text).parse::<u16>() {
            Ok(port) => Ok(Listen { ip: None, port: Some(port) }),
            Err(_) => bad(format!(
                "'{text}' is not an address of this machine: IP, IP:PORT, [IPv6]:PORT or :PORT expected"
            )),
        }
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.ip, self.port) {
            (Some(ip), Some(port)) => SocketAddr::new(ip, port).fmt(f),
            (Some(ip), None) => ip.fmt(f),
            (None, Some(port)) => write!(f, ":{port}"),
            (None, None) => Ok(()),
        }
    }
}

/// A rate above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate(pub(crate) BitRate);

impl FromStr for Rate {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        match text.parse::<BitRate>()? {
            BitRate::ZERO => bad("a rate of zero moves nothing"),
            rate => Ok(Rate(rate)),
        }
    }
}

/// A rack's name, and what its uplink carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rack {
    pub(crate) name: String,
    pub(crate) uplink: Option<BitRate>,
}

impl FromStr for Rack {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (name, rate) = text.split_once('=').map_or((text, None), |(name, rate)| (name, Some(rate)));
        if name.trim().is_empty() {
            return bad(format!("'{text}' names no rack: NAME or NAME=RATE expected"));
        }
        let uplink = rate.map(str::parse::<Rate>).transpose()?.map(|rate| rate.0);
        Ok(Rack { name: name.trim().to_owned(), uplink })
    }
}

impl fmt::Display for Rack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.uplink.map_or(Ok(()), |rate| write!(f, "={}", exact_rate(rate)))
    }
}

/// Name of a machine: one line that is no address of another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeName(pub(crate) String);

impl NodeName {
    /// As a host name may be long (RFC 1035 §2.3.4).
    const LONGEST: usize = 253;
}

impl FromStr for NodeName {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let name = text.trim();
        if name.is_empty()
            || name.len() > NodeName::LONGEST
            || name.chars().any(|c| c.is_control() || c == ',')
        {
            return bad(format!(
                "'{}' is no name for a machine: 1 to {} bytes on one line without commas expected",
                text.escape_debug(),
                NodeName::LONGEST
            ));
        }
        Ok(NodeName(name.to_owned()))
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A number within bounds.
macro_rules! bounded {
    ($($(#[$doc:meta])* $name:ident($raw:ty) in $range:expr, $what:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) struct $name(pub(crate) $raw);
        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                match text.trim().parse() {
                    Ok(n) if $range.contains(&n) => Ok($name(n)),
                    _ => bad(format!("'{text}' is not {} in {}..={}", $what, $range.start(), $range.end())),
                }
            }
        }
    )*};
}

bounded! {
    /// A differentiated services code point (RFC 2474): 6 bits.
    Dscp(u8) in 0..=63, "a code point";
    /// The size of an IP packet. RFC 791 asks every host to take 576 bytes; ours need not be larger than jumbo frames.
    Mtu(u16) in 576..=9216, "a packet size";
    /// A UDP port; 0 means any free one.
    Port(u16) in 0..=u16::MAX, "a port";
    /// How many sources a task may have.
    SourceCount(u8) in 1..=u8::MAX, "a number of sources";
}

/// Code points of the levels above bulk, first level first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DscpLevels(pub(crate) [u8; 3]);

impl FromStr for DscpLevels {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let levels = text.split(',').map(|level| Ok(level.trim().parse::<Dscp>()?.0));
        let levels: Vec<u8> = levels.collect::<Result<_, ValueError>>()?;
        match levels.try_into() {
            Ok(levels) => Ok(DscpLevels(levels)),
            Err(_) => bad(format!("'{text}' is not three code points, as in 27,19,11")),
        }
    }
}

impl fmt::Display for DscpLevels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, second, third] = self.0;
        write!(f, "{first},{second},{third}")
    }
}

/// The weight of a flow: planned, or fixed for an experiment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Theta {
    #[default]
    Auto,
    Fixed(f64),
}

impl FromStr for Theta {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        if text == "auto" {
            return Ok(Theta::Auto);
        }
        match text.parse::<f64>() {
            Ok(value) if value.is_finite() && value >= headwater_units::Theta::FLOOR.get() => {
                Ok(Theta::Fixed(value))
            }
            _ => bad(format!("'{text}' is no weight: 'auto' or a number of at least 0.5 expected")),
        }
    }
}

impl fmt::Display for Theta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Theta::Auto => f.write_str("auto"),
            Theta::Fixed(value) => value.fmt(f),
        }
    }
}

/// A choice between words.
macro_rules! choice {
    ($($(#[$doc:meta])* $name:ident { $($(#[$item_doc:meta])* $item:ident = $word:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
        pub(crate) enum $name { $($(#[$item_doc])* #[value(name = $word)] $item),* }
        impl FromStr for $name {
            type Err = ValueError;
            fn from_str(text: &str) -> Result<Self, ValueError> {
                match text {
                    $($word => Ok($name::$item),)*
                    _ => bad(format!("'{text}' is none of: {}", [$($word),*].join(", "))),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$item => $word),* })
            }
        }
    )*};
}

choice! {
    /// Which symbols a source sends.
    Spread {
        /// Whole blocks per source by its measured rate, ranges at the end
        #[default]
        Listed = "listed",
        /// ESI = i + kM until enough are there, as in the PPUSH paper
        Residue = "residue",
        /// An equal part of each block, which no other source sends: PPUSH without its pool, the scheme ppush(0,x)
        Equal = "equal",
    }
    /// Which transport brings an object.
    Transport {
        /// As the controller chooses: push, but for incast where the receiver has seen that switches trim
        #[default]
        Auto = "auto",
        /// Sources push, each at the rate that its path takes (PPUSH)
        Push = "push",
        /// The receiver pulls symbol by symbol (SCDP): for networks whose switches trim, and for incast
        Pull = "pull",
    }
    /// How a cast travels.
    Via {
        /// Rates where the controller's network has switches that compute them, trees where it knows the network, multicast if a probe finds that it works, overlay else
        #[default]
        Best = "best",
        /// Down trees of the network that the controller was given (--topology FILE), or not at all
        Trees = "trees",
        /// By IP multicast; to each receiver by itself where it does not work
        Multicast = "multicast",
        /// Down trees of receivers, another tree for each part, who pass on what arrives: the source sends about one copy
        Overlay = "overlay",
        /// By IP multicast at the rate that switches compute, where the controller's network says that they do, or not at all
        Rates = "rates",
        /// To each receiver by itself
        Unicast = "unicast",
    }
    /// Response of a window to random loss.
    LossResponse {
        /// Nothing, as in the PPUSH paper; unsafe on shared networks
        Ignore = "ignore",
        /// Heavy loss without marks or delay counts as congestion
        #[default]
        Guarded = "guarded",
    }
    /// How progress is shown.
    ProgressMode {
        /// A bar if standard error is a terminal, else nothing
        #[default]
        Auto = "auto",
        /// A bar; plain lines now and then if standard error is no terminal
        Bar = "bar",
        /// One JSON object with "type":"progress" every half second, where results go
        Json = "json",
        /// Nothing
        None = "none",
    }
    /// Format of a log line.
    LogFormat {
        /// Words for people: time, level, what happened, `field=value`
        #[default]
        Text = "text",
        /// One JSON object per line, the same fields
        Json = "json",
    }
    /// Least level that is logged.
    LogLevel {
        /// Failures that are final
        Error = "error",
        /// Problems that somebody should look after
        #[default]
        Warn = "warn",
        /// Events: nodes, tasks, casts, names
        Info = "info",
        /// How it happened
        Debug = "debug",
        /// Everything
        Trace = "trace",
    }
}

/// Bytes of an object, the end not included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ByteRange {
    pub(crate) from: Bytes,
    pub(crate) to: Option<Bytes>,
}

impl FromStr for ByteRange {
    type Err = ValueError;
    fn from_str(text: &str) -> Result<Self, ValueError> {
        let Some((from, to)) = text.split_once('-').filter(|(from, _)| !from.trim().is_empty()) else {
            return bad(format!("'{text}' is no range: A-B or A- expected, as in 1MiB-2MiB"));
        };
        let from = from.parse::<Bytes>()?;
        let to = Some(to.trim()).filter(|to| !to.is_empty()).map(str::parse::<Bytes>).transpose()?;
        if to.is_some_and(|to| to <= from) {
            return bad(format!(
                "'{text}' is empty: the end is not included, so it must lie after the start"
            ));
        }
        Ok(ByteRange { from, to })
    }
}

/// Symbols that each source pushes before it is asked, where nobody has stated what links carry: 90 KB in packets of
/// Ethernet, what 1 Gbit/s carries in 0.7 ms. More would be a burst on slower paths, less would leave faster ones idle.
const INITIAL_WINDOW: u16 = 64;

impl Transport {
    /// Transport of a request; none where the controller is to choose. `window`: symbols that each source pushes before
    /// it is asked for more, where constants of a paper say so.
    pub(crate) fn delivery(self, window: Option<u16>) -> Option<Delivery> {
        match self {
            Transport::Auto => None,
            Transport::Push => Some(Delivery::Push),
            Transport::Pull => Some(Delivery::Pull { initial_window: window.unwrap_or(INITIAL_WINDOW) }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn mbit(n: u64) -> BitRate {
        BitRate::new(n * 1_000_000)
    }

    #[test]
    fn addresses_get_the_usual_port_unless_they_have_one() {
        for (text, full) in [
            ("10.0.0.1", "10.0.0.1:7000"),
            ("10.0.0.1:7002", "10.0.0.1:7002"),
            ("node-3.lan", "node-3.lan:7000"),
            ("fd00::1", "[fd00::1]:7000"),
            ("[fd00::1]", "[fd00::1]:7000"),
            ("[fe80::1%3]:9", "[fe80::1%3]:9"),
        ] {
            assert_eq!(text.parse::<HostPort>().unwrap().with_port(7000), full);
        }
        for text in ["", ":7000", "a:b", "a:0", "a:99999", "[fd00::1", "[x]:1", "a b", "http://x:1", "[::1]x"]
        {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn listening_addresses_are_ip_addresses_of_this_machine() {
        let at = |text: &str| text.parse::<Listen>().unwrap().at(7001);
        assert_eq!(at("10.0.0.1"), "10.0.0.1:7001".parse().unwrap());
        assert_eq!(at("10.0.0.1:0"), "10.0.0.1:0".parse().unwrap());
        assert_eq!(at("::1"), "[::1]:7001".parse().unwrap());
        assert_eq!(at("[::1]:9"), "[::1]:9".parse().unwrap());
        assert!(at(":9").ip().is_unspecified() && at("9").port() == 9);
        assert!("localhost:1".parse::<Listen>().is_err() && "70000".parse::<Listen>().is_err());
    }

    #[test]
    fn ranges_leave_out_their_end_and_are_never_empty() {
        let range = |from, to| Ok(ByteRange { from: Bytes::new(from), to });
        assert_eq!("0-1".parse(), range(0, Some(Bytes::new(1))));
        assert_eq!("1MiB-2MiB".parse(), range(1 << 20, Some(Bytes::mib(2))));
        assert_eq!("1k - 2k".parse(), range(1024, Some(Bytes::kib(2))));
        assert_eq!("4096-".parse(), range(4096, None));
        for text in ["", "-", "-5", "5", "5-5", "6-5", "a-b", "1-2-3"] {
            assert!(text.parse::<ByteRange>().is_err(), "{text}");
        }
    }

    #[test]
    fn racks_may_say_what_their_uplink_carries() {
        assert_eq!("r1".parse(), Ok(Rack { name: "r1".into(), uplink: None }));
        assert_eq!("r1=10Gbit/s".parse(), Ok(Rack { name: "r1".into(), uplink: Some(mbit(10_000)) }));
        assert!("=10Gbit/s".parse::<Rack>().is_err() && "r1=fast".parse::<Rack>().is_err());
    }

    #[test]
    fn sizes_have_a_unit() {
        assert_eq!(size("500GiB"), Ok(Bytes::mib(500 << 10)));
        assert_eq!(size("500B"), Ok(Bytes::new(500)));
        assert_eq!(size("0"), Ok(Bytes::ZERO));
        for text in ["500", "1.5", " 12 "] {
            assert!(size(text).unwrap_err().to_string().contains("MiB"), "{text}");
        }
    }

    #[test]
    fn numbers_out_of_bounds_are_told_the_bounds() {
        assert!("64".parse::<Dscp>().unwrap_err().to_string().contains("0..=63"));
        for (levels, reason) in [("27,19", "27,19,11"), ("27,19,64", "0..=63"), ("a,b,c", "code point")] {
            assert!(levels.parse::<DscpLevels>().unwrap_err().to_string().contains(reason), "{levels}");
        }
        assert!("0".parse::<SourceCount>().is_err() && "100".parse::<Mtu>().is_err());
        assert!("0.4".parse::<Theta>().is_err() && "inf".parse::<Theta>().is_err());
        assert_eq!("4".parse(), Ok(Theta::Fixed(4.0)));
    }

    fn comes_back<T: SettingValue + PartialEq + fmt::Debug>(value: &T) {
        let text = match value.written() {
            Value::String(text) => text,
            other => other.to_string(),
        };
        assert_eq!(T::read(&text).as_ref(), Ok(value), "{text}");
    }

    #[test]
    fn what_config_prints_reads_back_as_the_same_value() {
        comes_back(&"[fd00::1]:7".parse::<HostPort>().unwrap());
        comes_back(&"fd00::1".parse::<HostPort>().unwrap());
        comes_back(&"[::1]:7".parse::<Listen>().unwrap());
        comes_back(&":7".parse::<Listen>().unwrap());
        comes_back(&"r1=1234567bit/s".parse::<Rack>().unwrap());
        comes_back(&"zone=eu,disk=ssd".parse::<Labels>().unwrap());
        comes_back(&Theta::Auto);
        comes_back(&Theta::Fixed(0.75));
        comes_back(&Dscp(46));
        comes_back(&DscpLevels([27, 19, 0]));
        comes_back(&true);
        comes_back(&LossResponse::Ignore);
    }

    proptest! {
        #[test]
        fn quantities_that_config_prints_read_back_exactly(n in 1u64..1 << 52, scale in 0u32..4) {
            let n = (n >> (10 * scale)).max(1) * 1000u64.pow(scale);
            comes_back(&Rate(BitRate::new(n)));
            comes_back(&Bytes::new(n));
            comes_back(&Duration::from_nanos(n));
        }
    }
}
