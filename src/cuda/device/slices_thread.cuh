// Which vectors a thread has (device/slices_rows.cuh).

__device__ inline Place place_of_thread() {
  const int lane = (int)threadIdx.x % 32;
  const int warp = (int)threadIdx.x / 32;
  Place place;
  place.list = warp / kRowWarps;
  place.column = kColumns < 32 ? lane % kColumns : warp % kRowWarps * 32 + lane;
  place.warp_row = kColumns < 32 ? lane / kColumns : 0;
  place.active = place.list < kLists && place.warp_row < kWarpRows && place.column < kColumns;
  if (!place.active) place.column = place.list = 0;
  return place;
}
