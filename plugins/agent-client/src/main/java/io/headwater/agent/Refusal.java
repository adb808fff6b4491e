package io.headwater.agent;

/** Why an agent refuses a request or ends a flow. Later versions may add codes; those count as {@link #FAILED}. */
public enum Refusal {
  /** The connection to the agent ended. No agent says this: the client does. */
  CONNECTION_LOST(0, "the connection to the agent ended"),
  /** A frame broke the protocol. */
  MALFORMED(1, "the frame breaks the protocol"),
  /** No common version of the protocol. */
  VERSION(2, "no common version of the protocol"),
  /** The application has another token or belongs to another user. */
  NOT_YOURS(3, "the application has another token or another owner"),
  /** Nothing is registered under this name. */
  UNKNOWN(4, "no such application, output or partition"),
  /** The path is outside the agent's roots, or leads through a link. */
  OUTSIDE_ROOTS(5, "the path is not beneath a root of the agent, or leads through a link"),
  /** The file is not a regular file of the user who names it. */
  NOT_OWNER(6, "the file does not belong to the user who names it"),
  /** The file changed after it was registered. */
  CHANGED(7, "the file is not what it was when it was registered"),
  /** The file ends before the range does. */
  TRUNCATED(8, "the file ends before the range does"),
  /** The index makes no sense. */
  BAD_INDEX(9, "the index cannot be understood"),
  /** A quota of the user is used up. */
  QUOTA(10, "a quota of the user is used up"),
  /** The agent does not know the host. */
  UNKNOWN_HOST(11, "the agent does not know this host"),
  /** The host's agent cannot be reached. */
  UNREACHABLE(12, "the agent of that host cannot be reached"),
  /** The file cannot be read. */
  IO(13, "the file cannot be read"),
  /** The agent is about to stop. */
  STOPPING(14, "the agent is about to stop"),
  /** The number or name is in use. */
  EXISTS(15, "the name is in use"),
  /** Anything else. */
  FAILED(16, "failed");

  private final int code;
  private final String text;

  Refusal(int code, String text) {
    this.code = code;
    this.text = text;
  }

  /** Its number in the protocol. */
  public int code() {
    return code;
  }

  /** The refusal of this number. */
  public static Refusal of(int code) {
    return code >= 0 && code < values().length ? values()[code] : FAILED;
  }

  @Override
  public String toString() {
    return text;
  }
}
