package io.headwater.hadoop;

import java.io.Closeable;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.junit.jupiter.api.Assumptions;

/** A file system of a few MiB in memory. Skips the test, saying why, where it may not be mounted. */
final class SmallDisk implements Closeable {
  final Path folder;

  SmallDisk(Path folder, int mib) throws IOException {
    this.folder = Files.createDirectory(folder);
    if (!run("mount", "-t", "tmpfs", "-o", "size=" + mib + "m", "tmpfs", folder.toString())) {
      String why = "skipped: a tmpfs cannot be mounted here (not root, or no mount)";
      System.out.println(why);
      Assumptions.abort(why);
    }
  }

  /** From now on it has this size. */
  void resize(int mib) throws IOException {
    if (!run("mount", "-o", "remount,size=" + mib + "m", folder.toString())) {
      throw new IOException("it cannot be resized");
    }
  }

  @Override
  public void close() {
    run("umount", "--lazy", folder.toString());
  }

  /** Whether the command is there and succeeds. */
  private static boolean run(String... command) {
    try {
      return new ProcessBuilder(command).inheritIO().start().waitFor() == 0;
    } catch (IOException e) {
      return false;
    } catch (InterruptedException e) {
      throw new IllegalStateException(e);
    }
  }
}
