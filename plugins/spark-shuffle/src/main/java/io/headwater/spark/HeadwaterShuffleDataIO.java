package io.headwater.spark;

import org.apache.spark.SparkConf;
import org.apache.spark.shuffle.api.ShuffleDriverComponents;
import org.apache.spark.shuffle.sort.io.LocalDiskShuffleDataIO;

/** Files as the stock engine writes them, and a driver that knows that agents hold them. {@link HeadwaterShuffleManager} sets it. */
public class HeadwaterShuffleDataIO extends LocalDiskShuffleDataIO {
  /** Called by the engine. */
  public HeadwaterShuffleDataIO(SparkConf conf) {
    super(conf);
  }

  @Override
  public ShuffleDriverComponents driver() {
    return new HeadwaterDriverComponents();
  }
}
