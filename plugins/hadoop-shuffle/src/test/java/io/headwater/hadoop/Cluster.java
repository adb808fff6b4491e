package io.headwater.hadoop;

import io.headwater.agent.AgentProcess;
import java.io.Closeable;
import java.io.IOException;
import java.net.ServerSocket;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.mapreduce.v2.hs.JobHistoryServer;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.service.CompositeService;
import org.apache.hadoop.service.Service;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/**
 * YARN in this process with two NodeManagers, which are two hosts by their loopback addresses, and an agent for each. Tasks run in
 * processes of their own, as ever. (The minicluster's own class gives all its NodeManagers one name.)
 */
final class Cluster implements Closeable {
  static final List<String> HOSTS = List.of("127.0.0.2", "127.0.0.3");

  final Path folder;
  final Map<String, AgentProcess> agents = new LinkedHashMap<>();
  private final List<Service> services = new ArrayList<>();
  private final Configuration conf = new YarnConfiguration();
  private final int nodeMegabytes;

  /** Nodes for three tasks, so that a master and four others need both. */
  Cluster() throws IOException {
    this(3 * 512);
  }

  Cluster(int nodeMegabytes, String... agentOptions) throws IOException {
    this.nodeMegabytes = nodeMegabytes;
    AgentProcess.binary();
    // Short, since sockets are in it.
    folder = Files.createTempDirectory("hw");
    DefaultMetricsSystem.setMiniClusterMode(true);
    settings();
    start(new ResourceManager(), conf);
    start(new JobHistoryServer(), conf);
    for (String host : HOSTS) {
      start(new NodeManager(), node(host));
      agents.put(host, AgentProcess.start(folder.resolve("agents").resolve(host), host, List.of(locals(host)), agentOptions));
    }
    AgentProcess.introduce(agents);
  }

  private void start(CompositeService service, Configuration with) {
    service.init(with);
    services.add(0, service);
    service.start();
  }

  private void settings() throws IOException {
    conf.set("fs.defaultFS", "file:///");
    conf.set("hadoop.tmp.dir", folder.resolve("tmp").toString());
    // Tasks get this process's class path.
    conf.setBoolean("yarn.is.minicluster", true);
    for (String address :
        List.of(
            "yarn.resourcemanager.address",
            "yarn.resourcemanager.scheduler.address",
            "yarn.resourcemanager.resource-tracker.address",
            "yarn.resourcemanager.admin.address",
            "yarn.resourcemanager.webapp.address",
            "mapreduce.jobhistory.address",
            "mapreduce.jobhistory.admin.address",
            "mapreduce.jobhistory.webapp.address")) {
      conf.set(address, "127.0.0.1:" + freePort());
    }
    conf.set("yarn.resourcemanager.scheduler.class", "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler");
    conf.setInt("yarn.resourcemanager.nodemanagers.heartbeat-interval-ms", 200);
    conf.set("yarn.app.mapreduce.am.staging-dir", folder.resolve("staging").toString());
    conf.set("mapreduce.jobhistory.intermediate-done-dir", folder.resolve("history/new").toString());
    conf.set("mapreduce.jobhistory.done-dir", folder.resolve("history/done").toString());
    conf.set("mapreduce.framework.name", "yarn");
  }

  private Configuration node(String host) {
    Configuration node = new YarnConfiguration(conf);
    node.set(CountingShuffleHandler.HOST, host);
    node.set("yarn.nodemanager.bind-host", host);
    node.set("yarn.nodemanager.address", host + ":0");
    node.set("yarn.nodemanager.localizer.address", host + ":0");
    node.set("yarn.nodemanager.webapp.address", host + ":0");
    node.set("yarn.nodemanager.local-dirs", locals(host).toString());
    node.set("yarn.nodemanager.log-dirs", logs(host).toString());
    node.set("yarn.nodemanager.aux-services", "mapreduce_shuffle");
    node.set("yarn.nodemanager.aux-services.mapreduce_shuffle.class", CountingShuffleHandler.class.getName());
    node.setInt("mapreduce.shuffle.port", 0);
    node.setBoolean("mapreduce.shuffle.connection-keep-alive.enable", true);
    node.setInt("yarn.nodemanager.resource.memory-mb", nodeMegabytes);
    node.setInt("yarn.nodemanager.resource.cpu-vcores", 8);
    node.setBoolean("yarn.nodemanager.vmem-check-enabled", false);
    node.setBoolean("yarn.nodemanager.pmem-check-enabled", false);
    node.setBoolean("yarn.nodemanager.disk-health-checker.enable", false);
    return node;
  }

  private Path locals(String host) {
    Path path = folder.resolve("nodes").resolve(host).resolve("local");
    try {
      return Files.createDirectories(path);
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  private Path logs(String host) {
    return folder.resolve("nodes").resolve(host).resolve("logs");
  }

  /** Settings of a job that uses nothing of ours. */
  Configuration stock() {
    Configuration job = new YarnConfiguration(conf);
    String java = "--add-opens java.base/java.lang=ALL-UNNAMED -XX:TieredStopAtLevel=1 -XX:+UseSerialGC ";
    job.set("yarn.app.mapreduce.am.command-opts", java + "-Xmx300m");
    job.set("mapreduce.map.java.opts", java + "-Xmx300m");
    job.set("mapreduce.reduce.java.opts", java + "-Xmx300m");
    job.setInt("yarn.app.mapreduce.am.resource.mb", 512);
    job.setInt("mapreduce.map.memory.mb", 512);
    job.setInt("mapreduce.reduce.memory.mb", 512);
    job.setInt("mapreduce.task.io.sort.mb", 64);
    job.setInt("yarn.app.mapreduce.am.scheduler.heartbeat.interval-ms", 200);
    job.setInt("mapreduce.client.completion.pollinterval", 200);
    job.setInt("mapreduce.client.progressmonitor.pollinterval", 200);
    job.setInt("mapreduce.am.max-attempts", 1);
    job.setBoolean("mapreduce.map.speculative", false);
    job.setBoolean("mapreduce.reduce.speculative", false);
    // Reducers begin when all is there to be fetched.
    job.setFloat("mapreduce.job.reduce.slowstart.completedmaps", 1);
    return job;
  }

  /** Settings of a job that uses the agents. */
  Configuration agents() {
    Configuration job = stock();
    job.set("mapreduce.job.reduce.shuffle.consumer.plugin.class", AgentShuffle.class.getName());
    job.set("mapreduce.job.map.output.collector.class", AgentMapOutput.class.getName());
    job.set(JobAgent.SOCKET, folder.resolve("agents") + "/${env.NM_HOST}/agent.sock");
    return job;
  }

  /** What tasks of a job said of us, a list for each container that said anything. */
  List<List<String>> said(String jobId) throws IOException {
    String application = jobId.replace("job_", "application_");
    List<List<String>> said = new ArrayList<>();
    for (String host : HOSTS) {
      Path own = logs(host).resolve(application);
      if (!Files.exists(own)) {
        continue;
      }
      try (Stream<Path> files = Files.walk(own)) {
        for (Path file : files.filter(it -> it.getFileName().toString().equals("syslog")).toList()) {
          List<String> lines = Files.readAllLines(file).stream().filter(line -> line.contains("Headwater:")).toList();
          if (!lines.isEmpty()) {
            said.add(lines);
          }
        }
      }
    }
    return said;
  }

  /** Files with this name that NodeManagers keep for a job. */
  List<Path> files(String jobId, String name) throws IOException {
    String application = jobId.replace("job_", "application_");
    try (Stream<Path> all = Files.walk(folder.resolve("nodes"))) {
      return all.filter(it -> it.getFileName().toString().equals(name) && it.toString().contains(application)).toList();
    }
  }

  /** Outputs of a job's maps that a host has. */
  long outputs(String jobId, String host) throws IOException {
    return files(jobId, "file.out").stream().filter(file -> file.startsWith(locals(host))).count();
  }

  private static int freePort() throws IOException {
    try (ServerSocket any = new ServerSocket(0)) {
      return any.getLocalPort();
    }
  }

  @Override
  public void close() throws IOException {
    agents.values().forEach(AgentProcess::close);
    services.forEach(Service::stop);
    if (System.getenv("HEADWATER_KEEP") != null) {
      System.out.println("kept: " + folder);
      return;
    }
    delete(folder);
  }

  /** Deletes a folder and all in it. */
  static void delete(Path folder) throws IOException {
    try (Stream<Path> files = Files.walk(folder)) {
      files.sorted(Comparator.reverseOrder()).forEach(file -> file.toFile().delete());
    }
  }
}
