/** Whether the tests on a real node can run. */
import { findNodeHindrance } from '../../prepare/node-availability.ts';

/** Why no node can run here, in one line; undefined where one can. Pass it to `describe.skipIf`. */
export const NODE_HINDRANCE: string | undefined = findNodeHindrance();
