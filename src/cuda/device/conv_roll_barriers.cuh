// How threads of the kernel `conv_roll` hand stages to each other where strips have several rounds
// (device/conv_roll_rounds.cuh) and warpgroups take no turns: nobody waits for all others at once. Planes are
// numbered from 0; a stage has every second of them, so that its number is the parity of phases.

struct StageBarriers {
  arrivals::Barrier staged;  // phase i: plane i + 1 is put
  arrivals::Barrier taken;   // phase i: the products of plane i are done

  // By all threads; before the next barrier of the block.
  __device__ void begin() {
    if (threadIdx.x != 0) return;
    arrivals::begin(&staged, kWarps);
    arrivals::begin(&taken, kWarps);
    arrivals::publish();
  }
  // By all threads, behind the last wait and a barrier of the block.
  __device__ void end() {
    if (threadIdx.x != 0) return;
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(arrivals::address_of(&staged)) : "memory");
    asm volatile("mbarrier.inval.shared::cta.b64 [%0];" ::"r"(arrivals::address_of(&taken)) : "memory");
  }

  // By a whole warp, which has put its part of a plane.
  __device__ void say_staged() {
    arrivals::publish_rows();
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrivals::arrive(&staged);
  }
  // By a whole warp, whose products of a plane are done.
  __device__ void say_taken() {
    if (threadIdx.x % 32 == 0) arrivals::arrive(&taken);
  }
  // Until what is in a stage can be read.
  __device__ void wait_staged(int stage) const { arrivals::wait(&staged, 1 - stage); }
  // Until a stage can be written, of which the products of the plane before the last put are done.
  __device__ void wait_taken(int stage) const { arrivals::wait(&taken, stage); }
};
