package io.headwater.spark;

/** Names of map outputs at the agents. An executor is part of them: what Spark moves to another one is another output. */
final class Outputs {
  private Outputs() {}

  static String name(String executor, int shuffle, long map) {
    return "exec_" + executor + "/shuffle_" + shuffle + "_" + map;
  }
}
