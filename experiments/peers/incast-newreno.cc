// Many hosts send to one with TCP NewReno, in ns-3: what bench/incast-newreno runs in the packet engine.
//
//     g++ -O2 -o incast-newreno incast-newreno.cc -lns3-internet -lns3-point-to-point -lns3-traffic-control -lns3-network -lns3-core
//     ./incast-newreno --senders=16 --packets=179 --seed=1
//
// prints: senders, packets of each, seed, flows that finished, mean and longest completion time in seconds (last ACK back),
// how often a flow turned from sending to repairing after a timeout.
//
// A switch joins all hosts by links of 1 Gbit/s and 10 us; its port to the receiver holds 100 packets, the one that is being sent
// included. A packet of data is 1500 B with all headers, PPP's 2 B too, an ACK 42 B. Connections are open before the run begins, so
// that no handshake counts. Hosts take a random time of up to 12 us to send a packet, in order.

#include <deque>
#include <iostream>
#include <utility>
#include <vector>

#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

using namespace ns3;

namespace {

constexpr uint32_t kSegment = 1458;

/// A queue without limit that lets a packet go a random time after it came, and none before an earlier one.
class HoldingQueueDisc : public QueueDisc {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("HoldingQueueDisc").SetParent<QueueDisc>().AddConstructor<HoldingQueueDisc>();
    return id;
  }
  static Time most;

  HoldingQueueDisc() : QueueDisc(QueueDiscSizePolicy::NO_LIMITS), random_(CreateObject<UniformRandomVariable>()) {}

 private:
  bool DoEnqueue(Ptr<QueueDiscItem> item) override {
    const Time drawn = Simulator::Now() + NanoSeconds(random_->GetInteger(0, most.GetNanoSeconds()));
    last_ = std::max(last_, drawn);
    held_.emplace_back(last_, item);
    Simulator::Schedule(last_ - Simulator::Now(), &QueueDisc::Run, this);
    // What is held is counted by the base class; nothing is ever refused.
    return GetInternalQueue(0)->Enqueue(item);
  }

  Ptr<QueueDiscItem> DoDequeue() override {
    if (held_.empty() || held_.front().first > Simulator::Now()) return nullptr;
    held_.pop_front();
    return GetInternalQueue(0)->Dequeue();
  }

  bool CheckConfig() override {
    if (GetNInternalQueues() == 0) {
      AddInternalQueue(CreateObjectWithAttributes<DropTailQueue<QueueDiscItem>>("MaxSize", StringValue("1000000p")));
    }
    return true;
  }

  void InitializeParams() override {}

  Ptr<UniformRandomVariable> random_;
  std::deque<std::pair<Time, Ptr<QueueDiscItem>>> held_;
  Time last_;
};

Time HoldingQueueDisc::most = MicroSeconds(12);

/// The window after a recovery is the flight and one packet, at most the threshold: the first choice of RFC 6582 (3.2, step 3), which
/// the packet engine makes; ns-3 makes the second, the threshold. ns-3 adds a packet for the ACK itself, which counts here.
class BoundedRecovery : public TcpClassicRecovery {
 public:
  static TypeId GetTypeId() {
    static TypeId id = TypeId("BoundedRecovery").SetParent<TcpClassicRecovery>().AddConstructor<BoundedRecovery>();
    return id;
  }
  void ExitRecovery(Ptr<TcpSocketState> state) override {
    const uint32_t flight = std::max(state->m_bytesInFlight.Get(), kSegment);
    state->m_cWnd = std::min(state->m_ssThresh.Get(), flight);
    state->m_cWndInfl = state->m_cWnd;
  }
  Ptr<TcpRecoveryOps> Fork() override { return CopyObject<BoundedRecovery>(this); }
};

struct Flow {
  Ptr<Socket> socket;
  uint64_t bytes = 0;
  uint64_t left = 0;
  double finish = -1;
  uint32_t timeouts = 0;
};

std::vector<Flow> flows;
uint32_t unfinished = 0;
const Time kStart = Seconds(2);

void Write(uint32_t at) {
  Flow& flow = flows[at];
  while (flow.left > 0) {
    const uint32_t part = std::min<uint64_t>(flow.left, kSegment);
    if (flow.socket->GetTxAvailable() < part || flow.socket->Send(Create<Packet>(part)) < 0) return;
    flow.left -= part;
  }
}

void Acknowledged(uint32_t at, SequenceNumber32, SequenceNumber32 next) {
  Flow& flow = flows[at];
  // The first number is the SYN's.
  if (flow.finish < 0 && Simulator::Now() >= kStart && next.GetValue() >= flow.bytes + 1) {
    flow.finish = (Simulator::Now() - kStart).GetSeconds();
    if (--unfinished == 0) Simulator::Stop();
  }
}

// ns-3 takes a doubled timeout back with the next ACK of something new. RFC 6298 (5.7) and Karn's algorithm keep it until a packet is
// timed that was sent once.
void Timeout(uint32_t at, Time before, Time now) {
  if (now == before + before) flows[at].socket->SetAttribute("MinRto", TimeValue(now));
}

void Sampled(uint32_t at, Time, Time) { flows[at].socket->SetAttribute("MinRto", TimeValue(MilliSeconds(200))); }

void State(uint32_t at, TcpSocketState::TcpCongState_t, TcpSocketState::TcpCongState_t now) {
  flows[at].timeouts += now == TcpSocketState::CA_LOSS;
}

}  // namespace

int main(int argc, char* argv[]) {
  uint32_t senders = 16, packets = 179, seed = 1, queue = 100, window = 10;
  double until = 60;
  bool keep = false, bounded = false;
  CommandLine command;
  command.AddValue("senders", "hosts that send", senders);
  command.AddValue("packets", "packets of each", packets);
  command.AddValue("seed", "of all that is drawn", seed);
  command.AddValue("queue", "packets that the port to the receiver holds", queue);
  command.AddValue("window", "initial window, packets", window);
  command.AddValue("until", "seconds after which the run ends", until);
  command.AddValue("keep", "a doubled timeout stays until a packet is timed that was sent once", keep);
  command.AddValue("bounded", "the window after a recovery is at most the flight and one packet", bounded);
  command.Parse(argc, argv);

  RngSeedManager::SetSeed(seed);
  Config::SetDefault("ns3::TcpL4Protocol::SocketType", TypeIdValue(TcpNewReno::GetTypeId()));
  Config::SetDefault("ns3::TcpL4Protocol::RecoveryType", TypeIdValue(bounded ? BoundedRecovery::GetTypeId() : TcpClassicRecovery::GetTypeId()));
  Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(kSegment));
  Config::SetDefault("ns3::TcpSocket::InitialCwnd", UintegerValue(window));
  Config::SetDefault("ns3::TcpSocket::DelAckCount", UintegerValue(1));
  Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(1 << 26));
  Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(4096 * kSegment));
  Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(MilliSeconds(200)));
  Config::SetDefault("ns3::TcpSocketBase::Timestamp", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::Sack", BooleanValue(false));
  Config::SetDefault("ns3::TcpSocketBase::LimitedTransmit", BooleanValue(false));
  Config::SetDefault("ns3::Ipv4GlobalRouting::RandomEcmpRouting", BooleanValue(false));

  NodeContainer hosts(senders + 1);
  Ptr<Node> hub = CreateObject<Node>();
  InternetStackHelper internet;
  internet.SetIpv6StackInstall(false);
  internet.Install(hosts);
  internet.Install(hub);

  PointToPointHelper link;
  link.SetDeviceAttribute("DataRate", StringValue("1Gbps"));
  link.SetChannelAttribute("Delay", StringValue("10us"));
  Ipv4AddressHelper addresses("10.0.0.0", "255.255.255.252");
  TrafficControlHelper none;
  Ipv4Address receiver_address;
  for (uint32_t host = 0; host <= senders; ++host) {
    link.SetQueue("ns3::DropTailQueue", "MaxSize", StringValue("1000000p"));
    NetDeviceContainer ends = link.Install(hosts.Get(host), hub);
    if (host == senders) {
      // The device takes the packet that it sends out of its queue.
      DynamicCast<PointToPointNetDevice>(ends.Get(1))->GetQueue()->SetMaxSize(QueueSize(QueueSizeUnit::PACKETS, queue - 1));
    }
    Ipv4InterfaceContainer given = addresses.Assign(ends);
    addresses.NewNetwork();
    if (host == senders) receiver_address = given.GetAddress(0);
    none.Uninstall(ends);
    Ptr<TrafficControlLayer> layer = hosts.Get(host)->GetObject<TrafficControlLayer>();
    layer->SetRootQueueDiscOnDevice(ends.Get(0), CreateObject<HoldingQueueDisc>());
  }
  Ipv4GlobalRoutingHelper::PopulateRoutingTables();

  const uint16_t port = 9;
  Ptr<Socket> listener = Socket::CreateSocket(hosts.Get(senders), TcpSocketFactory::GetTypeId());
  listener->Bind(InetSocketAddress(Ipv4Address::GetAny(), port));
  listener->Listen();
  listener->SetAcceptCallback(MakeNullCallback<bool, Ptr<Socket>, const Address&>(), MakeCallback(+[](Ptr<Socket> socket, const Address&) {
                                socket->SetRecvCallback(MakeCallback(+[](Ptr<Socket> from) {
                                  while (from->Recv()) {
                                  }
                                }));
                              }));

  flows.resize(senders);
  unfinished = senders;
  for (uint32_t at = 0; at < senders; ++at) {
    Flow& flow = flows[at];
    flow.bytes = flow.left = uint64_t(packets) * kSegment;
    flow.socket = Socket::CreateSocket(hosts.Get(at), TcpSocketFactory::GetTypeId());
    flow.socket->TraceConnectWithoutContext("HighestRxAck", MakeBoundCallback(&Acknowledged, at));
    flow.socket->TraceConnectWithoutContext("CongState", MakeBoundCallback(&State, at));
    if (keep) {
      flow.socket->TraceConnectWithoutContext("RTO", MakeBoundCallback(&Timeout, at));
      flow.socket->TraceConnectWithoutContext("RTT", MakeBoundCallback(&Sampled, at));
    }
    // One after the other, so that no SYN is lost.
    Simulator::Schedule(MilliSeconds(at), [at, receiver_address] {
      flows[at].socket->Bind();
      flows[at].socket->Connect(InetSocketAddress(receiver_address, 9));
    });
    Simulator::Schedule(kStart, [at] { Write(at); });
  }
  Simulator::Stop(kStart + Seconds(until));
  Simulator::Run();

  double sum = 0, longest = 0;
  uint32_t finished = 0, timeouts = 0;
  for (const Flow& flow : flows) {
    timeouts += flow.timeouts;
    if (flow.finish < 0) continue;
    ++finished;
    sum += flow.finish;
    longest = std::max(longest, flow.finish);
  }
  std::cout << senders << ' ' << packets << ' ' << seed << ' ' << finished << ' ' << sum / finished << ' ' << longest << ' ' << timeouts
            << '\n';
  Simulator::Destroy();
}
