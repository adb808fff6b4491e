package io.headwater.agent;

/**
 * What a program wants: partitions of an output of the same application, which lie behind each other, from a host.
 *
 * @param coflow a number that means the same on all hosts of the application, such as that of a shuffle
 * @param host the host, as the agent's list calls it
 * @param output the output's name there
 * @param first the first partition
 * @param count how many, at least 1
 * @param credit bytes that the program has room for already; with none, the agent says the length and waits
 */
public record Fetch(long coflow, String host, String output, int first, int count, long credit) {
  /** Checks what the agent would refuse. */
  public Fetch {
    Frames.name(host);
    Frames.name(output);
    if (first < 0 || count < 1 || first + count < 0 || credit < 0) {
      throw new IllegalArgumentException(
          "no fetch: first " + first + ", count " + count + ", credit " + credit);
    }
  }
}
