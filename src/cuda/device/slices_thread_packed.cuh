// Which vectors a thread has (device/slices_rows_packed.cuh).

__device__ inline Place place_of_thread() {
  Place place;
  place.list = (int)threadIdx.x / kColumns;
  place.column = (int)threadIdx.x % kColumns;
  place.warp_row = 0;
  place.active = place.list < kLists;
  if (!place.active) place.column = place.list = 0;
  return place;
}
