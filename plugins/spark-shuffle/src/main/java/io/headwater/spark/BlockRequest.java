package io.headwater.spark;

import java.util.ArrayList;
import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.network.buffer.ManagedBuffer;
import org.apache.spark.network.shuffle.BlockFetchingListener;
import org.apache.spark.network.shuffle.DownloadFileManager;

/** Blocks that were asked for together. What the agent did not get is fetched together as well, when all others are here. */
final class BlockRequest {
  private final BlockFetchingListener listener;
  private final DownloadFileManager files;
  private final Consumer<String[]> stock;

  // Guarded by this.
  private final List<String> failed = new ArrayList<>();
  private int left;

  /** @param files where blocks go to files; null if they stay in memory */
  BlockRequest(int blocks, BlockFetchingListener listener, DownloadFileManager files, Consumer<String[]> stock) {
    this.left = blocks;
    this.listener = listener;
    this.files = files;
    this.stock = stock;
  }

  DownloadFileManager files() {
    return files;
  }

  void succeeded(String block, ManagedBuffer buffer) {
    try {
      listener.onBlockFetchSuccess(block, buffer);
    } finally {
      over();
    }
  }

  void failed(String block) {
    synchronized (this) {
      failed.add(block);
    }
    over();
  }

  private void over() {
    synchronized (this) {
      left--;
      if (left > 0 || failed.isEmpty()) {
        return;
      }
    }
    stock.accept(failed.toArray(String[]::new));
  }
}
