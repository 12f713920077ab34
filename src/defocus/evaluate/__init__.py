"""How well photographs were restored, and how far the truth they are judged by can be trusted."""
