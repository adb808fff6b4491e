package io.headwater.hadoop;

/** Counters of a job's shuffle, beside Hadoop's own. */
public enum ShuffleCounter {
  /** Map outputs that reducers fetched through agents. */
  AGENT_OUTPUTS,
  /** Bytes of these, as they lie in the files. */
  AGENT_BYTES,
  /** Times that a flow waited without credit since the reducer had no memory for it. */
  AGENT_WAITS,
  /** Map outputs that a reducer wanted from an agent and then fetched the stock way. */
  STOCK_INSTEAD,
  /** Reducers that fetched everything the stock way. */
  STOCK_REDUCERS
}
