#include "runtime/memory/node_memory.h"

namespace octet {

NodeMemory::~NodeMemory() {
  if (!node_->ReadyToFree()) return;
  MutexLock lock(&mutex_);
  for (const Piece& piece : pieces_) piece.free(piece.data);
}

}  // namespace octet
