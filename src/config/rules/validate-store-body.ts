/** The rules of stored bodies. */
import type { Milliseconds } from '../../core/clock.ts';
import type { Config, WebhookConfig } from '../schema/config.ts';
import { error, type Path, type Rating } from './rating.ts';

/** Redacting a larger one would delay other requests. */
const MAX_STORED_BODY_BYTES = 65_536;
/** Bodies may contain personal data, which must not stay longer than operators need it. */
const MAX_RETENTION_MS: Milliseconds = 86_400_000;
/** The memory of a body besides its content, and what is lost because it is allocated in blocks. */
const ROOM_BYTES = 2_048;

/** Everything wrong with `storeBody`. */
export function checkStoreBody({ storeBody }: WebhookConfig, path: Path, { journal }: Config): Rating[] {
  if (storeBody === undefined) return [];
  const { maxBytes, retention } = storeBody;
  const found: Rating[] = [];
  if (journal.size === 0)
    found.push(error(path, 'bodies are stored in the journal, which is disabled', 'remove storeBody, or set journal.size: 1000'));
  if (maxBytes < 1 || maxBytes > MAX_STORED_BODY_BYTES)
    found.push(error([...path, 'maxBytes'], 'a stored body has 1 byte to 64Ki', 'maxBytes: 64Ki, or remove storeBody'));
  else if (maxBytes + ROOM_BYTES > journal.maxBodyBytes)
    found.push(
      error(
        [...path, 'maxBytes'],
        'such a body does not fit into journal.maxBodyBytes, the memory of all stored bodies',
        'raise journal.maxBodyBytes, for example to 4Mi, or lower maxBytes',
      ),
    );
  if (retention < 1 || retention > MAX_RETENTION_MS)
    found.push(error([...path, 'retention'], 'a body is stored for 1ms to 1d', 'retention: 1h, or remove storeBody'));
  return found;
}
