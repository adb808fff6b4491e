//! Endpoints talking to each other over loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use headwater_units::{Bytes, Duration, NodeId};
use tokio::time::timeout;

use super::*;

const SOON: std::time::Duration = std::time::Duration::from_secs(10);

/// One node: its state folder and its endpoint.
struct Node {
    state: tempfile::TempDir,
    endpoint: ControlEndpoint,
}

impl Node {
    fn with(listen: &str, config: ControlConfig) -> Node {
        let state = tempfile::tempdir().unwrap();
        let endpoint = Self::endpoint(&state, listen, config);
        Node { state, endpoint }
    }

    fn new() -> Node {
        Self::with("127.0.0.1:0", ControlConfig::default())
    }

    fn endpoint(state: &tempfile::TempDir, listen: &str, config: ControlConfig) -> ControlEndpoint {
        let identity = Arc::new(Identity::load_or_create(state.path()).unwrap());
        let pins = Pins::open(state.path()).unwrap();
        ControlEndpoint::bind(listen.parse().unwrap(), identity, pins, config).unwrap()
    }

    fn addr(&self) -> SocketAddr {
        self.endpoint.local_addr()
    }

    fn pins(&self) -> Pins {
        Pins::open(self.state.path()).unwrap()
    }
}

async fn linked(dialler: &Node, listener: &Node) -> (Link, Link) {
    let (dialled, accepted) = timeout(SOON, async {
        tokio::join!(dialler.endpoint.dial(listener.addr(), Expect::Pinned), listener.endpoint.accept())
    })
    .await
    .unwrap();
    (dialled.unwrap(), accepted.unwrap())
}

/// Goal: nothing on the way takes them for datagrams of a transfer, which begin with the protocol's version in four bits.
#[tokio::test]
async fn packets_show_that_they_are_quic() {
    let (one, two) = (Node::with("127.0.0.1:0", quick()), Node::with("127.0.0.1:0", quick()));
    let first_bytes = Arc::new(std::sync::Mutex::new(Vec::new()));
    let noted = Arc::clone(&first_bytes);
    let at = relay(two.addr(), move |packet| {
        noted.lock().unwrap().push(packet[0]);
        true
    })
    .await;
    let (here, there) = timeout(SOON, async {
        let (dialled, accepted) = tokio::join!(one.endpoint.dial(at, Expect::Pinned), two.endpoint.accept());
        (dialled.unwrap(), accepted.unwrap())
    })
    .await
    .unwrap();
    for n in 0..200u32 {
        here.send(n.to_be_bytes().to_vec()).await.unwrap();
        timeout(SOON, there.recv()).await.unwrap().unwrap();
    }
    let first_bytes = first_bytes.lock().unwrap();
    assert!(first_bytes.len() > 200 && first_bytes.iter().all(|first| first & 0x40 != 0));
}

/// A controller that is not run for a while loses nothing of what a thousand nodes say meanwhile.
#[tokio::test]
async fn what_many_say_before_it_is_read_is_not_lost() {
    let listener = Node::new();
    if listener.endpoint.buffer_hint().is_some() {
        return headwater_skips::cannot("the kernel grants no receive buffer of 8 MiB");
    }
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    // Nothing is awaited, so the endpoint does not run in between.
    for _ in 0..2_000 {
        socket.send_to(&[0x40; 300], listener.addr()).unwrap();
    }
    let sockets = std::fs::read_to_string("/proc/net/udp").unwrap();
    let port = format!(":{:04X} ", listener.addr().port());
    let line = sockets.lines().find(|line| line.contains(&port)).expect("it listens");
    assert_eq!(line.split_whitespace().next_back(), Some("0"), "dropped: {line}");
}

fn quick() -> ControlConfig {
    ControlConfig {
        keep_alive: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(2),
        dial_timeout: Duration::from_secs(3),
        ..ControlConfig::default()
    }
}

#[tokio::test]
async fn frames_arrive_in_order_both_ways_and_each_side_knows_the_other() {
    for listen in ["127.0.0.1:0", "[::1]:0"] {
        let (one, two) = (Node::with(listen, quick()), Node::with(listen, quick()));
        let (here, there) = linked(&one, &two).await;
        assert_eq!((here.peer(), there.peer()), (two.endpoint.node(), one.endpoint.node()));
        assert_eq!((here.remote_addr(), there.remote_addr()), (two.addr(), one.addr()));
        let frame = |n: u32| n.to_be_bytes().repeat(1 + n as usize % 3000);
        let send = async {
            for n in 0..2000 {
                here.send(frame(n)).await.unwrap();
            }
        };
        let echo = async {
            for n in 0..2000 {
                let got = there.recv().await.unwrap().to_vec();
                assert_eq!(got, frame(n));
                there.send(got).await.unwrap();
            }
        };
        let back = async {
            for n in 0..2000 {
                assert_eq!(here.recv().await.unwrap().to_vec(), frame(n));
            }
        };
        timeout(SOON, async { tokio::join!(send, echo, back) }).await.unwrap();
        assert_eq!(here.try_send(vec![0; 65536]).map_err(|e| e.to_string()), Ok(()));
        assert!(matches!(here.send(vec![0; 65537]).await, Err(ControlError::TooLong { .. })));
    }
}

#[tokio::test]
async fn a_dual_stack_endpoint_is_reached_over_both_and_dials_both() {
    let both = Node::with("[::]:0", quick());
    for home in ["127.0.0.1:0", "[::1]:0"] {
        let other = Node::with(home, quick());
        let addr = SocketAddr::new(other.addr().ip(), both.addr().port());
        let (dialled, accepted) =
            tokio::join!(other.endpoint.dial(addr, Expect::Pinned), both.endpoint.accept());
        assert_eq!(dialled.unwrap().remote_addr(), addr);
        assert_eq!(accepted.unwrap().remote_addr(), other.addr(), "IPv4 is plain IPv4");
        linked(&both, &other).await;
    }
    let four = Node::new();
    let error = four.endpoint.dial("[::1]:9".parse().unwrap(), Expect::Pinned).await.unwrap_err();
    assert!(error.to_string().contains("IPv4 only"), "{error}");
}

#[tokio::test]
async fn a_long_reply_arrives_whole_and_holds_up_no_frame() {
    let (one, two) = (Node::new(), Node::new());
    let (here, there) = linked(&one, &two).await;
    let reply: Vec<u8> = (0..20 << 20).map(|i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let answer = async {
        let request = there.incoming_request().await.unwrap();
        assert_eq!(request.bytes, b"hashes, please");
        request.responder.respond(&reply).await.unwrap();
    };
    let done = AtomicBool::new(false);
    let ask = async {
        let got = here.request(b"hashes, please", Bytes::mib(64)).await.unwrap();
        done.store(true, Ordering::Relaxed);
        assert!(got == reply);
    };
    let chat = async {
        let mut rounds = 0;
        while !done.load(Ordering::Relaxed) {
            here.send(vec![7; 100]).await.unwrap();
            there.send(there.recv().await.unwrap().to_vec()).await.unwrap();
            assert_eq!(here.recv().await.unwrap().to_vec(), [7; 100]);
            rounds += 1;
        }
        rounds
    };
    let (_, _, rounds) = timeout(SOON, async { tokio::join!(answer, ask, chat) }).await.unwrap();
    assert!(rounds > 10, "only {rounds} rounds of frames during the reply");
}

#[tokio::test]
async fn stuck_requests_hold_up_no_frame() {
    let (one, two) = (Node::new(), Node::new());
    let (here, there) = linked(&one, &two).await;
    // Every request that may be open is, in both directions.
    let big = vec![1; 4 << 10];
    let mut stuck = Vec::new();
    for (asker, answerer) in [(&here, &there), (&there, &here)] {
        for _ in 0..ControlConfig::default().requests_at_once {
            let (link, big) = (asker.clone(), big.clone());
            stuck.push(tokio::spawn(async move { link.request(&big, Bytes::mib(64)).await }));
            let request = timeout(SOON, answerer.incoming_request()).await.unwrap().unwrap();
            stuck.push(tokio::spawn(async move {
                let _request = request;
                std::future::pending().await
            }));
        }
    }
    for n in 0..50_u8 {
        here.send(vec![n; 60_000]).await.unwrap();
        assert_eq!(timeout(SOON, there.recv()).await.unwrap().unwrap().to_vec(), vec![n; 60_000]);
    }
    // One more has to wait for its turn.
    let waiting = here.request(b"", Bytes::ZERO);
    assert!(timeout(std::time::Duration::from_millis(100), waiting).await.is_err());
    stuck.iter().for_each(|task| task.abort());
}

#[tokio::test]
async fn requests_fail_clearly() {
    let (one, two) = (Node::new(), Node::new());
    let (here, there) = linked(&one, &two).await;
    let asked = |request: &'static [u8], limit| here.request(request, limit);

    let (result, ()) = tokio::join!(asked(b"a", Bytes::kib(1)), async {
        there.incoming_request().await.unwrap().responder.refuse();
    });
    assert!(matches!(result, Err(ControlError::Refused)), "{result:?}");

    let (result, answered) = tokio::join!(asked(b"b", Bytes::kib(1)), async {
        there.incoming_request().await.unwrap().responder.respond(&[0; 2 << 20]).await
    });
    assert!(matches!(result, Err(ControlError::TooLong { .. })), "{result:?}");
    assert!(matches!(answered, Err(ControlError::Refused)), "{answered:?}");

    let long = vec![0; (4 << 10) + 1];
    let result = timeout(SOON, here.request(&long, Bytes::kib(1))).await.unwrap();
    assert!(matches!(result, Err(ControlError::Refused)), "{result:?}");

    // A reply that was begun and abandoned is never taken for a whole one.
    let (result, ()) = tokio::join!(asked(b"c", Bytes::mib(64)), async {
        let responder = there.incoming_request().await.unwrap().responder;
        let begun = vec![0; 8 << 20];
        let _ = timeout(std::time::Duration::from_millis(5), responder.respond(&begun)).await;
    });
    assert!(matches!(result, Err(ControlError::Refused)) || result.is_ok_and(|r| r.len() == 8 << 20));

    let (result, ()) = tokio::join!(asked(b"d", Bytes::kib(1)), async {
        let request = there.incoming_request().await.unwrap();
        there.close("enough");
        drop(request);
    });
    let error = result.unwrap_err().to_string();
    assert_eq!(error, "link closed: closed by the peer: enough");
}

#[tokio::test]
async fn the_first_contact_is_stored_and_a_changed_key_is_refused() {
    let (one, two) = (Node::new(), Node::new());
    let (addr, old) = (two.addr(), two.endpoint.node());
    assert_eq!(linked(&one, &two).await.0.pin(), Some(PinOutcome::Stored));
    assert_eq!(one.pins().get(addr).unwrap(), Some(old));
    assert_eq!(linked(&one, &two).await.0.pin(), Some(PinOutcome::Matched));

    // Another node takes the address over, once the tasks of the first have let go of it.
    two.endpoint.close("gone").await;
    drop(two);
    while std::net::UdpSocket::bind(addr).is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let two = Node::with(&addr.to_string(), ControlConfig::default());
    let error = one.endpoint.dial(addr, Expect::Pinned).await.unwrap_err();
    let ControlError::KeyChanged(changed) = error else { panic!("{error}") };
    let found = two.endpoint.node();
    assert_eq!((changed.addr, changed.expected, changed.found), (addr, old, found));
    let text = std::fs::read_to_string(one.pins().path()).unwrap();
    assert!(text.lines().nth(changed.line - 1).unwrap().contains(&old.to_string()));
    let said = changed.to_string();
    assert!(said.contains(&old.to_string()) && said.contains(&format!("--pin {found}")), "{said}");
    assert!(timeout(std::time::Duration::from_millis(300), two.endpoint.accept()).await.is_err());
    assert_eq!((two.endpoint.stats().links_accepted, two.endpoint.stats().handshakes_failed), (0, 1));

    // Saying that it is right makes it right, from then on.
    let (stated, _) = tokio::join!(one.endpoint.dial(addr, Expect::Stated(found)), two.endpoint.accept());
    assert_eq!(stated.unwrap().pin(), Some(PinOutcome::Replaced(old)));
    let (pinned, _there) = linked(&one, &two).await;
    assert_eq!(pinned.pin(), Some(PinOutcome::Matched));
}

#[tokio::test]
async fn a_demanded_key_must_answer() {
    let (one, two) = (Node::new(), Node::new());
    let wrong = NodeId([9; 32]);
    for expect in [Expect::Stated(wrong), Expect::Known(wrong)] {
        let error = one.endpoint.dial(two.addr(), expect).await.unwrap_err();
        let ControlError::PinMismatch { expected, found, .. } = error else { panic!("{error}") };
        assert_eq!((expected, found), (wrong, two.endpoint.node()));
    }
    assert_eq!(one.pins().get(two.addr()).unwrap(), None, "a refused key is not stored");
    let right = Expect::Known(two.endpoint.node());
    let (known, _) = tokio::join!(one.endpoint.dial(two.addr(), right), two.endpoint.accept());
    assert_eq!(known.unwrap().pin(), None);
    assert_eq!(one.pins().get(two.addr()).unwrap(), None, "hearsay is not stored");
}

#[tokio::test]
async fn a_certificate_without_its_key_is_refused() {
    /// Shows the honest node's certificate, but can only sign with another key.
    #[derive(Debug)]
    struct Thief(Arc<rustls::sign::CertifiedKey>);
    impl rustls::server::ResolvesServerCert for Thief {
        fn resolve(
            &self,
            _hello: rustls::server::ClientHello<'_>,
        ) -> Option<Arc<rustls::sign::CertifiedKey>> {
            Some(self.0.clone())
        }
    }
    let (honest, thief) = (Identity::ephemeral().unwrap(), Identity::ephemeral().unwrap());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let key = provider.key_provider.load_private_key(thief.key()).unwrap();
    let shown = rustls::sign::CertifiedKey::new(vec![honest.certificate()], key);
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Thief(Arc::new(shown))));
    tls.alpn_protocols = vec![tls::ALPN.into()];
    let quic = quinn::crypto::rustls::QuicServerConfig::try_from(tls).unwrap();
    let config = quinn::ServerConfig::with_crypto(Arc::new(quic));
    let server = quinn::Endpoint::server(config, "127.0.0.1:0".parse().unwrap()).unwrap();
    let addr = server.local_addr().unwrap();
    tokio::spawn(async move {
        while let Some(incoming) = server.accept().await {
            let _ = incoming.await;
        }
    });
    let one = Node::with("127.0.0.1:0", quick());
    for expect in [Expect::Pinned, Expect::Stated(honest.node()), Expect::Known(honest.node())] {
        let error = one.endpoint.dial(addr, expect).await.unwrap_err();
        assert!(matches!(error, ControlError::Handshake { .. }), "{error}");
        assert!(error.to_string().contains("BadSignature"), "{error}");
        assert_eq!(one.pins().get(addr).unwrap(), None, "an unproven key is not stored");
    }
}

#[tokio::test]
async fn a_dialler_without_a_key_is_not_accepted() {
    let node = Node::with("127.0.0.1:0", quick());
    let mut tls =
        rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(tls::PeerKey::any()))
            .with_no_client_auth();
    tls.alpn_protocols = vec![tls::ALPN.into()];
    let quic = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    let client = quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
    let connecting = client.connect_with(quinn::ClientConfig::new(Arc::new(quic)), node.addr(), "x").unwrap();
    // The dialler's own handshake ends first; the refusal follows.
    if let Ok(connection) = connecting.await {
        timeout(SOON, connection.closed()).await.unwrap();
    }
    assert!(timeout(std::time::Duration::from_millis(200), node.endpoint.accept()).await.is_err());
    assert_eq!(node.endpoint.stats().handshakes_failed, 1);
}

#[tokio::test]
async fn another_protocol_version_is_named_as_the_reason() {
    let one = Node::new();
    let state = tempfile::tempdir().unwrap();
    let identity = Arc::new(Identity::load_or_create(state.path()).unwrap());
    let later = ControlEndpoint::bind_speaking(
        "headwater/1",
        "127.0.0.1:0".parse().unwrap(),
        identity,
        Pins::open(state.path()).unwrap(),
        ControlConfig::default(),
    )
    .unwrap();
    let error = one.endpoint.dial(later.local_addr(), Expect::Pinned).await.unwrap_err();
    assert!(matches!(error, ControlError::ProtocolVersion { .. }), "{error}");
    assert!(error.to_string().contains("peer speaks another protocol version"), "{error}");
    assert_eq!(one.pins().get(later.local_addr()).unwrap(), None);
}

#[tokio::test]
async fn nobody_there_is_said_within_the_dial_timeout() {
    let one = Node::with("127.0.0.1:0", quick());
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = one.endpoint.dial(silent.local_addr().unwrap(), Expect::Pinned).await.unwrap_err();
    assert!(matches!(error, ControlError::CannotReach { .. }), "{error}");
    assert!(error.to_string().starts_with("cannot reach 127.0.0.1:"), "{error}");
}

/// A listener that says nothing for a while, and then wakes up, is found by a dialler that was told to wait for it.
#[tokio::test]
async fn one_that_stands_still_is_dialled_on_if_the_user_says_how_long() {
    let one = Node::with("127.0.0.1:0", quick());
    let asleep = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = asleep.local_addr().unwrap();
    let wakes = async {
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        drop(asleep);
        Node::with(&at.to_string(), quick())
    };
    let dials = one.endpoint.dial_patiently(at, Expect::Pinned, Duration::from_secs(60), true);
    let woken = async {
        let node = wakes.await;
        let link = node.endpoint.accept().await;
        (node, link)
    };
    let (dialled, _woken) =
        timeout(std::time::Duration::from_secs(90), async { tokio::join!(dials, woken) }).await.unwrap();
    assert!(dialled.is_ok(), "{}", dialled.unwrap_err());
}

/// One that has the port open but comes to no handshake shows that it is there, and is dialled again until it does.
#[tokio::test]
async fn whoever_is_there_and_busy_is_dialled_again_and_whoever_is_not_is_not() {
    let one = Node::with("127.0.0.1:0", quick());
    let patience = Duration::from_secs(20);
    // No slot: it turns diallers away.
    let full = Node::with("127.0.0.1:0", ControlConfig { max_links: 1, ..quick() });
    let first = Node::with("127.0.0.1:0", quick());
    let (held, _held_there) = linked(&first, &full).await;
    let leaves = async {
        tokio::time::sleep(std::time::Duration::from_millis(1500)).await;
        held.close("");
        drop(_held_there);
    };
    let accepts = async { full.endpoint.accept().await.unwrap() };
    let dials = one.endpoint.dial_patiently(full.addr(), Expect::Pinned, patience, false);
    let (dialled, _there, ()) =
        timeout(std::time::Duration::from_secs(60), async { tokio::join!(dials, accepts, leaves) })
            .await
            .unwrap();
    assert!(dialled.is_ok(), "{}", dialled.unwrap_err());
    // One that stays full is named so when the patience is over.
    let short = Duration::from_millis(300);
    let error = first.endpoint.dial_patiently(full.addr(), Expect::Pinned, short, false).await.unwrap_err();
    assert!(matches!(error, ControlError::Busy { .. }) && error.to_string().contains("--timeout"), "{error}");
    // A peer that is not there is not waited for.
    let gone = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dead =
        timeout(SOON, one.endpoint.dial_patiently(gone, Expect::Pinned, Duration::from_secs(600), true));
    let error = dead.await.expect("it fails as fast as ever").unwrap_err().to_string();
    assert!(error.contains("nothing listens on UDP port"), "{error}");
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let at = silent.local_addr().unwrap();
    let dead =
        timeout(SOON, one.endpoint.dial_patiently(at, Expect::Pinned, Duration::from_secs(600), false));
    let error = dead.await.expect("it fails as fast as ever").unwrap_err().to_string();
    assert!(error.contains("no answer") && error.contains("firewall"), "{error}");
}

#[tokio::test]
async fn a_listener_is_known_without_a_handshake() {
    let node = Node::new();
    let there = presence::presence_at(node.addr(), Duration::from_secs(10)).await;
    assert_eq!((there, node.endpoint.stats().handshakes_failed), (presence::Presence::There, 0));
}

/// Hands what comes from a dialler on to the first listener, until that has answered once; from then on to the second.
async fn changes_hands(port: tokio::net::UdpSocket, listeners: [SocketAddr; 2]) {
    let (mut dialler, mut at) = (None, listeners[0]);
    let mut packet = [0; 2048];
    loop {
        let (len, from) = port.recv_from(&mut packet).await.unwrap();
        match dialler.filter(|_| listeners.contains(&from)) {
            None => {
                dialler = Some(from);
                port.send_to(&packet[..len], at).await.unwrap();
            }
            Some(dialler) if from == at => {
                port.send_to(&packet[..len], dialler).await.unwrap();
                at = listeners[1];
            }
            // The first one is gone.
            Some(_) => {}
        }
    }
}

#[tokio::test]
async fn a_peer_that_restarts_in_the_middle_of_a_handshake_is_dialled_again() {
    let (one, two) = (Node::new(), Node::new());
    let again = Node::endpoint(&two.state, "127.0.0.1:0", ControlConfig::default());
    let port = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = port.local_addr().unwrap();
    let relay = tokio::spawn(changes_hands(port, [two.addr(), again.local_addr()]));
    let link = one.endpoint.dial(addr, Expect::Pinned).await.unwrap();
    assert_eq!(link.peer(), again.node());
    assert_eq!((two.endpoint.stats().links_accepted, again.stats().links_accepted), (0, 1));
    relay.abort();
}

#[tokio::test]
async fn garbage_at_the_port_disturbs_nothing() {
    let (one, two) = (Node::with("127.0.0.1:0", quick()), Node::with("127.0.0.1:0", quick()));
    let (here, there) = linked(&one, &two).await;
    let noise = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let mut state = 1_u64;
    for n in 0..3000_usize {
        let mut packet = vec![0; n % 1400];
        for byte in &mut packet {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        // Every third looks like a QUIC Initial of version 1.
        if n % 3 == 0 && packet.len() > 30 {
            packet[..6].copy_from_slice(&[0xc3, 0, 0, 0, 1, 8]);
        }
        let _ = noise.send_to(&packet, two.addr());
        let _ = noise.send_to(&packet, one.addr());
        if n % 100 == 0 {
            here.send(n.to_be_bytes().to_vec()).await.unwrap();
            assert_eq!(timeout(SOON, there.recv()).await.unwrap().unwrap().to_vec(), n.to_be_bytes());
        }
    }
    linked(&one, &two).await;
    assert_eq!(here.end(), None);
}

/// Carries those datagrams between one dialler and `target` that pass. While none do, both hear nothing, as if the host vanished.
async fn relay(target: SocketAddr, passes: impl Fn(&[u8]) -> bool + Send + 'static) -> SocketAddr {
    let front = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let back = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let addr = front.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut from_front, mut from_back) = ([0; 65536], [0; 65536]);
        let mut dialler = None;
        loop {
            tokio::select! {
                Ok((len, from)) = front.recv_from(&mut from_front) => {
                    dialler = Some(from);
                    if passes(&from_front[..len]) {
                        let _ = back.send_to(&from_front[..len], target).await;
                    }
                }
                Ok((len, _)) = back.recv_from(&mut from_back) => {
                    if let (Some(dialler), true) = (dialler, passes(&from_back[..len])) {
                        let _ = front.send_to(&from_back[..len], dialler).await;
                    }
                }
            }
        }
    });
    addr
}

/// All of them, unless they are cut off.
fn unless(cut: &Arc<AtomicBool>) -> impl Fn(&[u8]) -> bool + Send + 'static {
    let cut = cut.clone();
    move |_| !cut.load(Ordering::Relaxed)
}

#[tokio::test]
async fn a_vanished_peer_is_noticed_within_the_idle_timeout() {
    let (one, two) = (Node::with("127.0.0.1:0", quick()), Node::with("127.0.0.1:0", quick()));
    let cut = Arc::new(AtomicBool::new(false));
    let addr = relay(two.addr(), unless(&cut)).await;
    let (here, there) = tokio::join!(one.endpoint.dial(addr, Expect::Pinned), two.endpoint.accept());
    let (here, there) = (here.unwrap(), there.unwrap());
    // Idle for longer than the timeout: keep-alives hold the link.
    tokio::time::sleep(std::time::Duration::from_millis(3_000)).await;
    assert_eq!((here.end(), there.end()), (None, None));

    cut.store(true, Ordering::Relaxed);
    let ends = timeout(SOON, async { tokio::join!(here.closed(), there.closed()) }).await.unwrap();
    assert_eq!(ends, (LinkEnd::Silent, LinkEnd::Silent));
    assert!(here.recv().await.is_none());
    assert!(here.incoming_request().await.is_none());
    let error = here.send(vec![1]).await.unwrap_err().to_string();
    assert_eq!(error, "link closed: the peer fell silent");
}

#[tokio::test]
async fn a_peer_that_was_killed_and_is_back_says_so_at_once() {
    let one = Node::new();
    let Node { state, endpoint } = Node::new();
    let cut = Arc::new(AtomicBool::new(false));
    let at = endpoint.local_addr();
    let addr = relay(at, unless(&cut)).await;
    let (here, there) = tokio::join!(one.endpoint.dial(addr, Expect::Pinned), endpoint.accept());
    let (here, there) = (here.unwrap(), there.unwrap());
    // Nothing that it says when it ends is heard.
    cut.store(true, Ordering::Relaxed);
    drop((there, endpoint));
    let again = loop {
        let identity = Arc::new(Identity::load_or_create(state.path()).unwrap());
        let pins = Pins::open(state.path()).unwrap();
        match ControlEndpoint::bind(at, identity, pins, ControlConfig::default()) {
            Ok(again) => break again,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    };
    cut.store(false, Ordering::Relaxed);
    let end = timeout(SOON, here.closed()).await.unwrap();
    assert_eq!(end, LinkEnd::ByPeer("it restarted".to_owned()), "not silence, which takes eight seconds");
    drop(again);
}

#[tokio::test]
async fn finishing_delivers_what_is_queued_and_closing_says_why() {
    // A short queue, so that most frames are still on their way when the sender finishes.
    let config = ControlConfig { queue: 4, ..ControlConfig::default() };
    let (one, two) = (Node::with("127.0.0.1:0", config.clone()), Node::with("127.0.0.1:0", config));
    let (here, there) = linked(&one, &two).await;
    for n in 0..200_u8 {
        here.send(vec![n; 500]).await.unwrap();
    }
    here.finish().await;
    for n in 0..200_u8 {
        assert_eq!(timeout(SOON, there.recv()).await.unwrap().unwrap().to_vec(), vec![n; 500]);
    }
    assert!(timeout(SOON, there.recv()).await.unwrap().is_none());
    assert_eq!(there.closed().await, LinkEnd::ByPeer(GOING_AWAY.to_owned()));
    assert!(there.was_left() && !here.was_left());
    assert_eq!(here.closed().await, LinkEnd::Here);

    let (here, there) = linked(&one, &two).await;
    there.close("going to bed");
    assert_eq!(timeout(SOON, here.closed()).await.unwrap(), LinkEnd::ByPeer("going to bed".to_owned()));
}

#[tokio::test]
async fn a_frame_beyond_the_limit_ends_the_link() {
    let generous = ControlConfig { max_frame: Bytes::mib(1), ..ControlConfig::default() };
    let (one, two) = (Node::with("127.0.0.1:0", generous), Node::new());
    let (here, there) = linked(&one, &two).await;
    here.send(vec![0; 100_000]).await.unwrap();
    assert!(timeout(SOON, there.recv()).await.unwrap().is_none());
    assert_eq!(here.closed().await, LinkEnd::ByPeer("frame too long".to_owned()));
}

#[tokio::test]
async fn more_diallers_than_allowed_are_refused_until_a_link_ends() {
    let few = ControlConfig { max_links: 2, ..quick() };
    let (server, client) = (Node::with("127.0.0.1:0", few), Node::with("127.0.0.1:0", quick()));
    let (_first, first) = linked(&client, &server).await;
    let (_second, _second_too) = linked(&client, &server).await;
    let error = client.endpoint.dial(server.addr(), Expect::Pinned).await.unwrap_err();
    assert!(error.to_string().contains("no more links"), "{error}");
    assert_eq!(server.endpoint.stats().diallers_refused, 1);
    drop(first);
    linked(&client, &server).await;
}

#[tokio::test]
async fn more_diallers_than_there_are_turns_wait_and_none_is_refused() {
    let few = ControlConfig { handshakes_at_once: 4, ..ControlConfig::default() };
    let server = Node::with("127.0.0.1:0", few);
    let client = Node::with("127.0.0.1:0", ControlConfig::default());
    // The key is known once and for all.
    linked(&client, &server).await;
    let mut dialling = tokio::task::JoinSet::new();
    let (client, server) = (Arc::new(client), Arc::new(server));
    for _ in 0..200 {
        let (client, at) = (client.clone(), server.addr());
        dialling.spawn(async move { client.endpoint.dial(at, Expect::Pinned).await });
    }
    let accepting = tokio::spawn({
        let server = server.clone();
        async move {
            let mut links = Vec::new();
            while links.len() < 200 {
                links.extend(server.endpoint.accept().await);
            }
            links
        }
    });
    let mut links = Vec::new();
    while let Some(dialled) = dialling.join_next().await {
        links.push(dialled.unwrap().unwrap());
    }
    assert_eq!((links.len(), timeout(SOON, accepting).await.unwrap().unwrap().len()), (200, 200));
    let stats = server.endpoint.stats();
    assert_eq!((stats.diallers_refused, stats.handshakes_failed), (0, 0));
}

#[tokio::test]
async fn an_endpoint_may_only_dial() {
    let mute = ControlConfig { max_links: 0, ..quick() };
    let (one, two) = (Node::with("127.0.0.1:0", mute), Node::with("127.0.0.1:0", quick()));
    linked(&one, &two).await;
    assert!(two.endpoint.dial(one.addr(), Expect::Pinned).await.is_err());
    assert!(one.endpoint.accept().await.is_none());
}

#[tokio::test]
async fn a_taken_port_is_a_clear_error() {
    let one = Node::new();
    let identity = Arc::new(Identity::ephemeral().unwrap());
    let error =
        ControlEndpoint::bind(one.addr(), identity, one.pins(), ControlConfig::default()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {}", one.addr())), "{error}");
}
