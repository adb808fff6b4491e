package io.headwater.spark;

import java.util.List;
import java.util.function.Consumer;
import org.apache.spark.rpc.RpcEnv;
import org.apache.spark.rpc.ThreadSafeRpcEndpoint;
import scala.PartialFunction;
import scala.runtime.BoxedUnit;

/** Where an executor hears from the driver. */
final class ExecutorEndpoint implements ThreadSafeRpcEndpoint {
  static final String NAME = "headwater-shuffle-executor";

  private final RpcEnv rpcEnv;
  private final Consumer<List<String>> forget;
  private final Runnable over;

  ExecutorEndpoint(RpcEnv rpcEnv, Consumer<List<String>> forget, Runnable over) {
    this.rpcEnv = rpcEnv;
    this.forget = forget;
    this.over = over;
  }

  @Override
  public RpcEnv rpcEnv() {
    return rpcEnv;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receive() {
    return new Handler(message -> {
      if (message instanceof Messages.Forget it) {
        forget.accept(it.outputs());
        return true;
      }
      if (message instanceof Messages.Over) {
        over.run();
        return true;
      }
      return false;
    });
  }
}
