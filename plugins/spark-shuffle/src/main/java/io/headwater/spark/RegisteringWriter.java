package io.headwater.spark;

import java.io.IOException;
import org.apache.spark.scheduler.MapStatus;
import org.apache.spark.shuffle.ShuffleWriter;
import scala.Option;
import scala.Product2;
import scala.collection.Iterator;

/** Writes as the engine does. When the output is committed, the agent is told of it, before the driver is. */
final class RegisteringWriter<K, V> extends ShuffleWriter<K, V> {
  private final ShuffleWriter<K, V> stock;
  private final Runnable committed;

  RegisteringWriter(ShuffleWriter<K, V> stock, Runnable committed) {
    this.stock = stock;
    this.committed = committed;
  }

  @Override
  public void write(Iterator<Product2<K, V>> records) throws IOException {
    stock.write(records);
  }

  @Override
  public Option<MapStatus> stop(boolean success) {
    Option<MapStatus> status = stock.stop(success);
    if (success && status.isDefined()) {
      committed.run();
    }
    return status;
  }

  @Override
  public long[] getPartitionLengths() {
    return stock.getPartitionLengths();
  }
}
