package io.headwater.spark;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;

/** A Spark application of two executors with a core each, in processes of their own. */
final class Application implements AutoCloseable {
  private static final Path HOME = Path.of(System.getenv("SPARK_HOME"));

  /** Files of all applications: a process of the engine chooses its folders once. */
  static final Path LOCAL = HOME.resolveSibling("spark-local");

  final JavaSparkContext context;
  final Stages stages;

  private Application(SparkConf conf) throws InterruptedException {
    context = new JavaSparkContext(conf);
    stages = new Stages(context.sc());
    context.sc().addSparkListener(stages);
    // Both, so that outputs of either can be lost.
    awaitExecutors();
  }

  /** Waits for two executors: the driver counts as a third one. */
  void awaitExecutors() throws InterruptedException {
    Agents.await("two executors", () -> context.sc().statusTracker().getExecutorInfos().length == 3);
  }

  /** As the engine does when nobody refers to a shuffle any more. */
  void removeShuffles() {
    for (int shuffle = 0; shuffle < 20; shuffle++) {
      context.sc().cleaner().get().doCleanupShuffle(shuffle, true);
    }
  }

  static Application stock() throws Exception {
    return new Application(conf());
  }

  static Application withPlugin(Path socket) throws Exception {
    return withPlugin(socket, Map.of());
  }

  static Application withPlugin(Path socket, Map<String, String> more) throws Exception {
    SparkConf conf = conf()
        .set("spark.shuffle.manager", HeadwaterShuffleManager.class.getName())
        .set(Settings.SOCKET, socket.toString())
        .set(Settings.HOST, "host-{{EXECUTOR_ID}}");
    more.forEach(conf::set);
    return new Application(conf);
  }

  private static SparkConf conf() throws IOException {
    home();
    String classes = Stream.of(System.getProperty("java.class.path").split(":"))
        .filter(it -> Files.isDirectory(Path.of(it)))
        .collect(Collectors.joining(":"));
    return new SparkConf(false)
        .setMaster("local-cluster[2,1,1024]")
        .setAppName("shuffle-test")
        .set("spark.ui.enabled", "false")
        .set("spark.local.dir", Files.createDirectories(LOCAL).toString())
        .set("spark.executor.extraClassPath", classes)
        .set("spark.executor.memory", "512m")
        .set("spark.executor.extraJavaOptions", "-Dlog4j2.configurationFile=log4j2-test.properties " + System.getProperty("test.jvm"))
        .set("spark.shuffle.io.maxRetries", "1")
        .set("spark.shuffle.io.retryWait", "1s")
        .set("spark.port.maxRetries", "100");
  }

  /** Executors take their classes from the jars folder of SPARK_HOME. */
  private static void home() throws IOException {
    Path jars = HOME.resolve("jars");
    if (Files.exists(jars)) {
      return;
    }
    Files.createDirectories(jars);
    for (String entry : System.getProperty("java.class.path").split(":")) {
      Path file = Path.of(entry);
      if (Files.isRegularFile(file)) {
        Files.createSymbolicLink(jars.resolve(file.getFileName()), file.toAbsolutePath());
      }
    }
  }

  /** As kill -9 does; waits until the driver knows. */
  void kill(String executor) throws InterruptedException {
    List<ProcessHandle> processes = ProcessHandle.current().descendants().filter(it -> isExecutor(it, executor)).toList();
    if (processes.size() != 1) {
      throw new AssertionError(processes.size() + " processes of executor " + executor);
    }
    processes.get(0).destroyForcibly();
    Agents.await("the loss of executor " + executor, () -> stages.removed(executor));
  }

  private boolean isExecutor(ProcessHandle process, String executor) {
    try {
      String[] words = Files.readString(Path.of("/proc/" + process.pid() + "/cmdline")).split("\0");
      List<String> line = List.of(words);
      int at = line.indexOf("--executor-id");
      return at >= 0 && line.get(at + 1).equals(executor) && line.contains(context.sc().applicationId());
    } catch (IOException e) {
      return false;
    }
  }

  /** Ends an executor as dynamic allocation does; it deletes its files. */
  void end(String executor) throws InterruptedException {
    if (!context.sc().killExecutor(executor)) {
      throw new AssertionError("executor " + executor + " was not ended");
    }
    Agents.await("the end of executor " + executor, () -> stages.removed(executor));
  }

  /** Tells listeners that the application ends, as the engine does first of all then. Versions have different constructors. */
  void announceEnd() throws ReflectiveOperationException {
    var constructor = SparkListenerApplicationEnd.class.getConstructors()[0];
    Object[] arguments = {System.currentTimeMillis(), scala.Option.empty()};
    Object end = constructor.newInstance(Arrays.copyOf(arguments, constructor.getParameterCount()));
    context.sc().listenerBus().post((SparkListenerEvent) end);
  }

  /** Lines of the plugin in the log of an executor. */
  List<String> notices(String executor) {
    Path log = HOME.resolve("work").resolve(context.sc().applicationId()).resolve(executor).resolve("stderr");
    List<String> lines = new ArrayList<>();
    try {
      for (String line : Files.readAllLines(log)) {
        if (line.contains("WARN io.headwater.spark")) {
          lines.add(line);
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
    return lines;
  }

  @Override
  public void close() {
    context.close();
  }
}
