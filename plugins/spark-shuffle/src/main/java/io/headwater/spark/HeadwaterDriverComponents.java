package io.headwater.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.spark.MapOutputTrackerMaster;
import org.apache.spark.SparkEnv;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDriverComponents;
import scala.runtime.BoxedUnit;

/** The driver's part: it knows which executors have agents, and says whether outputs outlive an executor. */
final class HeadwaterDriverComponents extends LocalDiskShuffleDriverComponents {
  private DriverEndpoint endpoint;

  @Override
  public Map<String, String> initializeApplication() {
    var rpcEnv = SparkEnv.get().rpcEnv();
    endpoint = new DriverEndpoint(rpcEnv);
    rpcEnv.setupEndpoint(DriverEndpoint.NAME, endpoint);
    return super.initializeApplication();
  }

  /** Asked at every loss of an executor. The loss of a host shows as failed fetches, which the engine answers with a rerun. */
  @Override
  public boolean supportsReliableStorage() {
    return endpoint != null && endpoint.reliable();
  }

  @Override
  public void removeShuffle(int shuffleId, boolean blocking) {
    // Before the outputs are gone from the tracker, which the caller sees to.
    endpoint.forget(shuffleId, outputs(shuffleId));
    super.removeShuffle(shuffleId, blocking);
  }

  private static Map<String, List<String>> outputs(int shuffle) {
    Map<String, List<String>> names = new HashMap<>();
    if (SparkEnv.get().mapOutputTracker() instanceof MapOutputTrackerMaster tracker) {
      var status = tracker.shuffleStatuses().get(shuffle);
      if (status.isDefined()) {
        status.get().withMapStatuses(maps -> {
          for (MapStatus map : maps) {
            if (map != null) {
              String executor = map.location().executorId();
              names.computeIfAbsent(executor, it -> new ArrayList<>()).add(Outputs.name(executor, shuffle, map.mapId()));
            }
          }
          return BoxedUnit.UNIT;
        });
      }
    }
    return names;
  }
}
