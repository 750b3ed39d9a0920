/** The ID under which a sender knows the receiver, for senders that sign it, such as PayPal. */
import type { Piece, SchemeDescription } from './description.ts';

/** Replaces the piece by the ID, when the config is loaded. */
export function withReceiverId(description: SchemeDescription, id: string): SchemeDescription {
  const signed = description.signed.map((piece): Piece => (piece === 'receiverId' ? { text: id } : piece));
  return { ...description, signed };
}
