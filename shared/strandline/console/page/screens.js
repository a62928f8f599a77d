// The screens, in the order of the menu. router.js says how one is added.

import { screen as event } from "./event.js";
import { screen as overview } from "./overview.js";
import { screen as people } from "./people.js";
import { screen as recall } from "./recall.js";

export const SCREENS = [overview, people, recall, event];
