/** A row of the list. */
import { Component, type JSX } from 'preact';
import type { DeliveryView } from '../../console/delivery-schemas.ts';
import { formatTime } from '../format.ts';
import { Outcome, Stages } from './stages.tsx';

interface RowProps {
  readonly row: DeliveryView;
  readonly onOpen: (id: string) => void;
}

/** A delivery never changes, so its row is rendered once. */
export class DeliveryRow extends Component<RowProps> {
  override shouldComponentUpdate({ row }: RowProps): boolean {
    return row.id !== this.props.row.id;
  }

  override render({ row, onOpen }: RowProps): JSX.Element {
    const { id, at, outcome, route, method, path, stages, delivery, status, event, type } = row;
    const open = (click: MouseEvent): void => {
      if (click.ctrlKey || click.metaKey || click.shiftKey) return;
      click.preventDefault();
      onOpen(id);
    };
    return (
      <tr class={outcome}>
        <td class="time">
          <a href={`/?request=${id}`} onClick={open}>
            {formatTime(at)}
          </a>
        </td>
        <td>
          <Outcome outcome={outcome} />
        </td>
        <td class="route">{route ?? <span class="unmatched">{`${method} ${path ?? ''}`}</span>}</td>
        <td>
          <Stages stages={stages} delivery={delivery} />
        </td>
        <td class="number">{status}</td>
        <td class="id" title={event ?? undefined}>
          {event}
          {type !== null && <span class="aside"> {type}</span>}
        </td>
      </tr>
    );
  }
}
