package io.headwater.spark;

import io.headwater.agent.AgentClient;
import io.headwater.agent.Fetch;
import io.headwater.agent.Flow;
import io.headwater.agent.FlowListener;
import io.headwater.agent.Refusal;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.network.buffer.NioManagedBuffer;
import org.apache.spark.network.shuffle.DownloadFile;
import org.apache.spark.network.shuffle.DownloadFileWritableChannel;

/** One block on its way: into memory of its length, or into a file where the engine wants that. */
final class BlockFlow implements FlowListener {
  /** Arrays cannot be longer everywhere. The engine puts such blocks into files by itself, unless it is told not to. */
  private static final long LONGEST_IN_MEMORY = Integer.MAX_VALUE - 512;

  private final AgentBlockStoreClient owner;
  private final AgentClient agent;
  private final BlockRequest request;
  private final String source;
  private final String block;
  private final Fetch fetch;
  private final AtomicBoolean over = new AtomicBoolean();
  private volatile long heard = System.nanoTime();
  private volatile Flow flow;
  private volatile DownloadFile file;

  // Of the agent client's thread alone.
  private ByteBuffer memory;
  private DownloadFileWritableChannel channel;

  BlockFlow(
      AgentBlockStoreClient owner, AgentClient agent, BlockRequest request, String source, String executor, String block, BlockName name) {
    this.owner = owner;
    this.agent = agent;
    this.request = request;
    this.source = source;
    this.block = block;
    // Credit for a first block saves a turn for all that is no longer than it.
    this.fetch = new Fetch(
        name.shuffle(), source, Outputs.name(executor, name.shuffle(), name.map()), name.first(), name.count(), agent.block());
  }

  void start() {
    heard = System.nanoTime();
    try {
      flow = agent.fetch(fetch, this);
    } catch (IOException | RuntimeException e) {
      fail(Refusal.CONNECTION_LOST.code(), String.valueOf(e.getMessage()));
    }
  }

  boolean isSilent(long now, long patience) {
    return now - heard > patience;
  }

  /**
   * Not called by the agent client's thread, which may be writing: its buffer and channel are left to it.
   *
   * @param frozen whether the agent brings nothing to anybody: then its connection ends, and with it all other flows
   */
  void giveUp(boolean frozen) {
    if (over.compareAndSet(false, true)) {
      Flow mine = flow;
      if (mine != null) {
        mine.cancel();
      }
      DownloadFile begun = file;
      if (begun != null) {
        begun.delete();
      }
      Notices.stock("blocks of host " + source + " are fetched", "the agent does not deliver them in time");
      owner.over(this);
      request.failed(block);
    }
    if (frozen) {
      agent.close();
    }
  }

  private void hear() {
    heard = System.nanoTime();
    owner.heard(heard);
  }

  @Override
  public void opened(Flow it, long length, long info) {
    hear();
    if (length == 0 || request.files() == null && length > LONGEST_IN_MEMORY) {
      it.cancel();
      fail(Refusal.FAILED.code(), "a block of " + length + " bytes");
      return;
    }
    try {
      if (request.files() == null) {
        memory = ByteBuffer.allocate((int) length);
      } else {
        file = request.files().createTempFile(owner.transport());
        channel = file.openForWriting();
      }
    } catch (IOException e) {
      it.cancel();
      fail(Refusal.IO.code(), String.valueOf(e.getMessage()));
      return;
    }
    it.credit(Math.max(0, length - fetch.credit()));
  }

  @Override
  public void data(Flow it, ByteBuffer bytes) {
    hear();
    if (memory != null) {
      memory.put(bytes);
      return;
    }
    try {
      while (bytes.hasRemaining()) {
        channel.write(bytes);
      }
    } catch (IOException e) {
      it.cancel();
      fail(Refusal.IO.code(), String.valueOf(e.getMessage()));
    }
  }

  @Override
  public void end(Flow it) {
    if (!over.compareAndSet(false, true)) {
      discard();
      return;
    }
    owner.over(this);
    if (memory != null) {
      request.succeeded(block, new NioManagedBuffer(memory.flip()));
      return;
    }
    try {
      request.succeeded(block, channel.closeAndRead());
    } catch (IOException e) {
      owner.refused(source, Refusal.IO.code(), String.valueOf(e.getMessage()));
      request.failed(block);
      discard();
      return;
    }
    if (!request.files().registerTempFileToClean(file)) {
      file.delete();
    }
  }

  @Override
  public void broken(Flow it, int code, String text) {
    fail(code, text);
  }

  private void fail(int code, String why) {
    discard();
    if (over.compareAndSet(false, true)) {
      owner.refused(source, code, why);
      owner.over(this);
      request.failed(block);
    }
  }

  private void discard() {
    memory = null;
    DownloadFile begun = file;
    if (begun == null) {
      return;
    }
    try {
      channel.close();
    } catch (IOException e) {
      Notices.info("a file of a block was not closed: {}", e.getMessage());
    }
    begun.delete();
    file = null;
  }
}
