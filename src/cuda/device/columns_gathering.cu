// The kernel `columns` where sums are gathered (device/columns_sums.cuh): a block's tiles are neighbours. Shared memory
// holds the lists of statistics, then the threads' columns.

extern "C" __global__ void __launch_bounds__(kThreads, kBlocks) columns(const __grid_constant__ Arguments a) {
  extern __shared__ __align__(128) char memory[];
  const Place place = place_of_thread();
  const Spans spans = spans_of(a);
  Gathered gathered;
  clear_sums(gathered, sums_column(memory));
  const Count first = (Count)blockIdx.x * spans.block_tiles;
  const Count end = first + spans.block_tiles < (Count)a.tiles ? first + spans.block_tiles : (Count)a.tiles;
  if (kAhead) {
    const Sites sites = sites_of(a, place, first);
    Kept nothing;
    begin_tile(a, place, sites, bases_of(a, sites), nothing, memory + kListBytes + kTotalsBytes);
  }
  Count span = first / spans.span_tiles;
  Count span_end = (span + 1) * spans.span_tiles;
  for (Count tile = first; tile < end; ++tile) {
    run_tile(a, place, tile, tile + 1 < end ? tile + 1 : -1, memory, gathered);
    if (tile + 1 != span_end && tile + 1 != end) continue;
    end_span(a, place, spans, span, gathered, memory);
    ++span;
    span_end += spans.span_tiles;
  }
  end_sums(a, spans);
}
