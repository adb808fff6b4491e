package io.headwater.hadoop;

import java.io.IOException;
import java.io.InputStream;
import org.apache.hadoop.io.compress.CompressionInputStream;
import org.apache.hadoop.io.compress.Decompressor;
import org.apache.hadoop.io.compress.DefaultCodec;

/**
 * Compression at which reducers stop at a {@link Gate}, in the middle of an output that has begun to come. So a test can do something
 * while all of them are on their way.
 */
public class GatedCodec extends DefaultCodec {
  @Override
  public CompressionInputStream createInputStream(InputStream in, Decompressor decompressor) throws IOException {
    Gate.pass(getConf());
    return super.createInputStream(in, decompressor);
  }
}
